// Heads as a map, or FFNs as bars: a click prunes one or restores it, with Shift all of its layer.
const VIEWS = new WeakMap() // state of a mount: kept in the browser while Python sends new numbers

export default function ({ data, parentElement, setStateValue }) {
  let view = VIEWS.get(parentElement)
  if (!view) VIEWS.set(parentElement, (view = begin(parentElement, data)))
  Object.assign(view, { data, tell: setStateValue })
  view.edits = view.edits.filter(edit => edit.number > data.seen) // the others are in `pruned` by now
  const shape = `${data.names.length} ${data.columns}`
  if (view.shape !== shape) build(view, shape)
  paint(view)
}

function begin(root, data) {
  const view = { root, grid: root.querySelector(".grid"), cells: [], edits: [], number: data.seen, shape: "" }
  view.grid.onclick = event => {
    const cell = event.target.closest("button")
    if (cell) turn(view, view.cells.indexOf(cell), event.shiftKey)
  }
  view.grid.onkeydown = event => {
    const at = view.cells.indexOf(event.target.closest("button")), across = view.data.columns
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + across, ArrowUp: at - across,
                 Home: 0, End: view.cells.length - 1 }[event.key]
    if (to === undefined) return // Enter and Space are clicks, with Shift if it is held
    event.preventDefault()
    const cell = view.cells[to]
    if (!cell) return
    for (const other of view.cells) other.tabIndex = other === cell ? 0 : -1
    cell.focus()
  }
  return view
}

function build(view, shape) {
  const { data, grid } = view, rows = data.names.length / data.columns
  view.shape = shape
  grid.style.setProperty("--row", `${data.row}px`)
  grid.style.gridTemplateColumns = `max-content repeat(${data.columns}, minmax(0, 1fr))`
  grid.classList.toggle("bars", Boolean(data.bars))
  const every = Math.ceil(data.columns / 24), down = Math.ceil(13 / data.row)
  const shown = []
  view.labels = new Map() // by layer
  view.cells = data.names.map((name, at) => {
    if (at % data.columns === 0) {
      const label = make("i", data.layers[at] % down ? "" : `${data.layers[at]}`)
      view.labels.set(data.layers[at], label)
      shown.push(label)
    }
    const cell = make("button", "")
    cell.type = "button"
    cell.tabIndex = at ? -1 : 0
    if (data.bars) cell.append(make("b", ""), make("span", ""))
    shown.push(cell)
    return cell
  })
  if (rows && data.columns > 1) {
    shown.push(make("i", ""))
    for (let h = 0; h < data.columns; h++) shown.push(make("i", h % every ? "" : `${h}`))
  }
  grid.replaceChildren(...shown)
}

// Which components are pruned: Python's last state, and the clicks since.
function prunedNow({ data, edits }) {
  const pruned = [...data.pruned]
  for (const edit of edits) for (const part of edit.parts) pruned[part] = edit.pruned
  return pruned
}

function turn(view, at, layer) {
  const { data } = view, now = prunedNow(view)
  const parts = layer ? data.names.map((_, part) => part).filter(part => data.layers[part] === data.layers[at]) : [at]
  const pruned = layer ? parts.some(part => !now[part]) : !now[at] // a layer is pruned as long as any of it is left
  view.edits.push({ number: ++view.number, parts, pruned })
  paint(view)
  view.tell("edits", view.edits)
}

function paint(view) {
  const { data, cells, grid, root } = view, pruned = prunedNow(view)
  const ramp = colorsOf(grid, "--st-chart-sequential-colors")
  grid.ariaLabel = `${data.words} Arrow keys move, Enter prunes or restores, with Shift the whole layer.`
  for (const [layer, label] of view.labels) label.classList.toggle("gone", data.gone.includes(layer))
  cells.forEach((cell, at) => {
    const score = data.score[at] === null ? "" : `, ${data.title.toLowerCase()} ${data.score[at]}`
    const rank = data.rank[at] === null ? "" : `, rank ${data.rank[at]} (1 = most important)`
    cell.classList.toggle("pruned", pruned[at])
    cell.ariaPressed = String(pruned[at])
    cell.ariaLabel = cell.title = `${data.names[at]}: ${!pruned[at] ? "kept" : data.gone.includes(data.layers[at]) ? "layer dropped" : "pruned"}${score}${rank}`
    if (data.bars) {
      const [from, share] = data.bars[at] ?? [0, 1]
      cell.classList.toggle("unknown", !data.bars[at])
      cell.firstChild.style.cssText = `--from: ${from}; --share: ${share}`
      cell.lastChild.textContent = data.said[at]
    } else cell.style.background = data.shade[at] === null ? "" : mixed(ramp, data.shade[at])
  })
  const scale = root.querySelector(".scale")
  scale.hidden = !data.scale
  if (!data.scale) return
  root.querySelector(".title").textContent = data.title
  root.querySelector(".ramp").style.background = `linear-gradient(to right, ${ramp.join(",")})`
  root.querySelector(".ticks").replaceChildren(...data.scale.map(([at, text]) => {
    const tick = make("span", text)
    tick.style.left = `${100 * at}%`
    return tick
  }))
}
