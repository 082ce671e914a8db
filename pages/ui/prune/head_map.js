// Heads as a map, or FFNs as bars: a click prunes one or restores it, with Shift all of its layer.
export default function (mount) {
  const { data } = mount, view = viewOf(mount, begin)
  view.edits = view.edits.filter(edit => edit.number > data.seen) // the others are in `pruned` by now
  const shape = `${data.names.length} ${data.columns}`
  if (view.shape !== shape) build(view, shape)
  paint(view)
}

function begin(part, data) {
  const view = { grid: part(".grid"), cells: [], edits: [], number: data.seen, shape: "" }
  view.grid.onclick = event => {
    const cell = event.target.closest("button")
    if (cell) turn(view, view.cells.indexOf(cell), event.shiftKey)
  }
  // Enter and Space are clicks, with Shift if it is held
  view.grid.onkeydown = event => { walk(event, view.cells, view.data.columns) }
  return view
}

function build(view, shape) {
  const { data, grid } = view
  view.shape = shape
  grid.style.setProperty("--row", `${data.row}px`)
  grid.style.gridTemplateColumns = `max-content repeat(${data.columns}, minmax(0, 1fr))`
  grid.classList.toggle("bars", Boolean(data.bars))
  const every = Math.ceil(data.columns / 24), down = Math.ceil(13 / data.row)
  const layers = data.layers.filter((_, at) => at % data.columns === 0)
  view.labels = layers.map(layer => labelOf(layer % down ? "" : `${layer}`))
  view.cells = data.names.map((_, at) => {
    const cell = make("button", "")
    cell.tabIndex = at ? -1 : 0
    if (data.bars) cell.append(make("b", ""), make("span", ""))
    return cell
  })
  grid.replaceChildren(...rowsOf(view.cells, view.labels, data.columns), ...(data.bars ? [] : columnsOf(data.columns, every)))
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
  const { data, cells, grid, part } = view, pruned = prunedNow(view)
  const ramp = colorsOf(grid, "--st-chart-sequential-colors")
  grid.ariaLabel = `${data.words} Arrow keys move, Enter prunes or restores, with Shift the whole layer.`
  grid.style.setProperty("--zero", data.zero ?? 0)
  view.labels.forEach((label, r) => label.classList.toggle("gone", data.gone.includes(data.layers[r * data.columns])))
  cells.forEach((cell, at) => {
    const score = data.score[at] === null ? "" : `, ${data.title.toLowerCase()} ${data.score[at]}`
    const rank = data.rank[at] === null ? "" : `, rank ${data.rank[at]} (1 = most important)`
    cell.classList.toggle("pruned", pruned[at])
    cell.classList.toggle("ringed", Boolean(data.ringed?.includes(at)))
    cell.ariaPressed = String(pruned[at])
    cell.ariaLabel = cell.title = `${data.names[at]}: ${!pruned[at] ? "kept" : data.gone.includes(data.layers[at]) ? "layer dropped" : "pruned"}${score}${rank}`
    if (data.bars) {
      const [from, share] = data.bars[at] ?? [0, 1]
      cell.classList.toggle("unknown", !data.bars[at])
      cell.classList.toggle("gain", from < data.zero) // no loss
      cell.firstChild.style.cssText = `--from: ${from}; --share: ${share}`
      cell.lastChild.textContent = data.said[at]
    } else cell.style.background = data.shade[at] === null ? "" : mixed(ramp, data.shade[at])
  })
  const scale = part(".scale")
  scale.hidden = !data.scale
  if (!data.scale) return
  part(".title").textContent = data.title
  part(".ramp").style.background = `linear-gradient(to right, ${ramp.join(",")})`
  part(".ticks").replaceChildren(...data.scale.map(([at, text]) => {
    const tick = make("span", text, "quiet")
    tick.style.left = `${100 * at}%`
    return tick
  }))
}
