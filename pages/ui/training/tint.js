// A text tinted by its losses at a snapshot: the one nearest to the tokens that a field of the page holds.
const VIEWS = new WeakMap()

export default function ({ data, parentElement }) {
  let view = VIEWS.get(parentElement)
  if (!view) VIEWS.set(parentElement, (view = begin(parentElement)))
  view.data = data
  if (view.pieces !== data.pieces.join("\u0000")) build(view)
  document.removeEventListener("input", view.hear, true)
  document.addEventListener("input", view.hear, true)
  paint(view)
  return () => document.removeEventListener("input", view.hear, true)
}

function begin(root) {
  const part = name => root.querySelector(name), view = { part, pieces: null, spans: [], over: null }
  view.hear = event => { if (event.target.id === view.data.field) paint(view) }
  const text = part(".text")
  text.onpointerover = event => { const at = view.spans.indexOf(event.target.closest("span")); if (at >= 0) point(view, at) }
  text.onkeydown = event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
    if (!step) return
    event.preventDefault()
    point(view, Math.min(view.spans.length - 1, Math.max(0, (view.over ?? -step) + step)))
  }
  return view
}

function build(view) {
  view.pieces = view.data.pieces.join("\u0000")
  view.over = null
  view.spans = view.data.pieces.map(piece => {
    const span = document.createElement("span")
    span.textContent = piece
    return span
  })
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
  shown.forEach((value, i) => {
    const share = value === null ? 0 : Math.min(1, Math.abs(value) / data.full)
    const colour = data.view === "loss" ? "--loss" : value > 0 ? "--worse" : "--better"
    spans[i].style.background = share < 0.02 ? "" : `color-mix(in srgb, var(${colour}) ${Math.round(58 * share)}%, transparent)`
  })
  const isLoss = data.view === "loss"
  part(".bar").className = `bar ${isLoss ? "of-loss" : "of-change"}`
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
  const token = at === null ? "" : view.data.pieces[at].replaceAll(" ", "␣").replaceAll("\n", "↵")
  view.part(".readout").textContent = at === null ? "Point at a token for its numbers." :
    value === null ? `“${token}”, token ${at + 1}: no loss.` : `“${token}”, token ${at + 1}: ${nats(value, view.data.view !== "loss")} nats.`
}

function nats(value, sign) {
  return (value < 0 ? "−" : sign && value > 0 ? "+" : "") + Math.abs(value).toFixed(2)
}
