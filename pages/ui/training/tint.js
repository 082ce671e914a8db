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

function values({ data }) {
  const field = document.getElementById(data.field), tokens = +(field?.value || data.tokens[data.last])
  const at = nearest(data.tokens, tokens)
  const rows = { change: [data.last, data.first], since: [at, data.first], loss: [at, null] }[data.view]
  const [to, from] = rows.map(row => row === null ? null : data.losses[row])
  return { at, shown: to.map((loss, i) => loss === null || (from && from[i] === null) ? null : loss - (from ? from[i] : 0)) }
}

function paint(view) {
  const { data, part, spans } = view, { at, shown } = values(view)
  view.shown = shown
  const isLoss = data.view === "loss"
  shown.forEach((value, i) => tint(spans[i], value, data.full, !isLoss))
  part(".bar").className = `bar ${isLoss ? "loss" : "worse"}`
  part(".low").textContent = isLoss ? "0" : `better, −${data.full}`
  part(".high").textContent = isLoss ? `${data.full} nats` : `+${data.full} nats, worse`
  part(".what").textContent = { change: `from ${data.start} to ${data.end}`, since: `from ${data.start} to ${inTokens(data.tokens[at])} tokens`,
                                loss: `at ${inTokens(data.tokens[at])} tokens` }[data.view]
  part(".text").dataset.snapshot = at
  point(view, view.over)
}

function point(view, at) {
  view.spans[view.over]?.classList.remove("over")
  view.over = at
  const value = at === null ? null : view.shown[at]
  view.spans[at]?.classList.add("over")
  const token = at === null ? "" : visible(view.data.pieces[at])
  view.part(".note").textContent = at === null ? "Point at a token for its numbers." :
    value === null ? `“${token}”, token ${at + 1}: no loss.` : `“${token}”, token ${at + 1}: ${nats(value, view.data.view !== "loss")} nats.`
}
