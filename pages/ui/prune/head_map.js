// Heads as a map, with the FFN of each layer as the last column: a click prunes one or restores it, with Shift all heads
// of its layer.
export default function (mount) {
  const { data } = mount, view = viewOf(mount, begin)
  view.edits = view.edits.filter(edit => edit.number > data.seen) // the others are in `pruned` by now
  const shape = `${data.name.length} ${data.columns}`
  if (view.shape !== shape) build(view, shape)
  paint(view)
}

function begin(part, data) {
  const view = { grid: part(".grid"), cells: [], edits: [], number: data.seen, shape: "" }
  view.grid.onclick = event => {
    const cell = event.target.closest("button")
    if (cell) turn(view, view.cells.indexOf(cell), event.shiftKey)
  }
  // the page is drawn while a button is pressed, and the map may move from under it: its click would be lost
  view.grid.onpointerdown = event => event.target.setPointerCapture(event.pointerId)
  // Enter and Space are clicks, with Shift if it is held
  view.grid.onkeydown = event => { walk(event, view.cells, view.data.columns) }
  return view
}

const isFfn = ({ columns }, at) => at % columns === columns - 1
const layerOf = ({ columns }, at) => Math.floor(at / columns)

function build(view, shape) {
  const { data, grid } = view, n = data.columns - 1
  view.shape = shape
  grid.style.setProperty("--row", `${data.row}px`)
  grid.style.gridTemplateColumns = `max-content repeat(${n}, minmax(0, 1fr)) minmax(2.2rem, 1fr)`
  const every = Math.ceil(n / 24), down = Math.ceil(13 / data.row)
  view.labels = data.name.filter((_, at) => isFfn(data, at)).map((_, layer) => labelOf(layer % down ? "" : `${layer}`))
  view.cells = data.name.map((_, at) => {
    const cell = make("button", "", isFfn(data, at) ? "ffn" : "")
    cell.tabIndex = at ? -1 : 0
    return cell
  })
  grid.replaceChildren(...rowsOf(view.cells, view.labels, data.columns), ...columnsOf(n, every), labelOf("FFN"))
}

// Which components are pruned: Python's last state, and the clicks since.
function prunedNow({ data, edits }) {
  const pruned = [...data.pruned]
  for (const edit of edits) for (const part of edit.parts) pruned[part] = edit.pruned
  return pruned
}

function turn(view, at, all) {
  const { data } = view, now = prunedNow(view), layer = layerOf(data, at)
  const heads = data.name.map((_, part) => part).filter(part => layerOf(data, part) === layer && !isFfn(data, part))
  const parts = all && !isFfn(data, at) ? heads : [at]
  const pruned = parts.some(part => !now[part]) // a layer is pruned as long as any of it is left
  view.edits.push({ number: ++view.number, parts, pruned })
  paint(view)
  view.tell("edits", view.edits)
}

function paint(view) {
  const { data, cells, grid, part } = view, pruned = prunedNow(view)
  const ramp = colorsOf(grid, "--st-chart-sequential-colors")
  grid.ariaLabel = `${data.words} Arrow keys move, Enter prunes or restores, with Shift the whole layer.`
  view.labels.forEach((label, layer) => label.classList.toggle("gone", data.gone.includes(layer)))
  cells.forEach((cell, at) => {
    const state = !pruned[at] ? "kept" : data.gone.includes(layerOf(data, at)) ? "layer dropped" : "pruned"
    const rank = data.rank[at] === null ? "" : `, rank ${data.rank[at]} (1 = most important)`
    cell.classList.toggle("pruned", pruned[at])
    cell.classList.toggle("outlined", data.outlined[at])
    cell.ariaPressed = String(pruned[at])
    cell.ariaLabel = cell.title = `${data.name[at]}: ${state}${data.said[at] && `, ${data.said[at]}`}${rank}`
    cell.style.background = data.shade[at] === null ? "" : mixed(ramp, data.shade[at])
  })
  part(".scale").hidden = !data.scale
  if (!data.scale) return
  part(".title").textContent = data.title
  part(".ramp").style.background = `linear-gradient(to right, ${ramp.join(",")})`
  part(".ticks").replaceChildren(...data.scale.map(([at, text]) => {
    const tick = make("span", text, "quiet")
    tick.style.left = `${100 * at}%`
    return tick
  }))
}
