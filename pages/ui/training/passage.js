// A text tinted by its losses at a snapshot: the one nearest to the tokens that a field of the page holds.
export default function (mount) {
  const { data } = mount, view = viewOf(mount, begin)
  if (view.pieces !== data.pieces.join("\u0000")) build(view)
  document.removeEventListener("input", view.hear, true)
  document.addEventListener("input", view.hear, true)
  paint(view)
  return () => document.removeEventListener("input", view.hear, true)
}

function begin(part) {
  const view = { pieces: null, spans: [], over: null }, text = part(".text")
  view.hear = event => { if (event.target.id === view.data.field) paint(view) }
  text.onpointerover = event => { const at = view.spans.indexOf(event.target.closest("span")); if (at >= 0) point(view, at) }
  text.onkeydown = event => {
    const to = view.over === null ? 0 : step(event, view.over, view.spans.length)
    if (step(event, 0, 1) === undefined) return
    event.preventDefault()
    point(view, within(to, view.spans.length))
  }
  return view
}

function build(view) {
  view.pieces = view.data.pieces.join("\u0000")
  view.over = null
  view.spans = view.data.pieces.map(piece => make("span", piece, "token"))
  view.part(".text").replaceChildren(...view.spans)
}

function paint(view) {
  const { data, part, spans } = view, field = document.getElementById(data.field)
  const at = nearest(data.tokens, +(field?.value || data.tokens.at(-1)))
  const before = data.losses[data.since]
  view.shown = data.losses[at].map((loss, i) => loss === null || before[i] === null ? null : loss - before[i])
  view.shown.forEach((value, i) => tint(spans[i], value, data.full, true))
  part(".low").textContent = `better, −${data.full}`
  part(".high").textContent = `+${data.full} nats, worse`
  part(".what").textContent = `from ${inTokens(data.tokens[data.since])} to ${inTokens(data.tokens[at])} tokens`
  part(".text").dataset.snapshot = at
  point(view, view.over)
}

function point(view, at) {
  view.spans[view.over]?.classList.remove("over")
  view.over = at
  const value = at === null ? null : view.shown[at]
  view.spans[at]?.classList.add("over")
  const token = at === null ? "" : visible(view.data.pieces[at])
  view.part(".note").textContent = at === null ? "Point at a token for its change." :
    value === null ? `“${token}”, token ${at + 1}: no loss.` : `“${token}”, token ${at + 1}: ${nats(value, true)} nats.`
}
