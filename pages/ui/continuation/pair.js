// Two prompts, token above token: one of the upper is dragged onto one of the lower, or both are chosen, one by one.
export default function (mount) {
  const { data } = mount, view = viewOf(mount, begin)
  if (!isStale(view)) Object.assign(view, { number: data.seen, pair: data.pair })
  const shape = JSON.stringify([data.other, data.own])
  if (view.shape !== shape) build(view, shape)
  paint(view)
}

function begin(part, data) {
  const view = { cells: [], pair: data.pair, taken: null, over: null, pointer: null, number: data.seen, toldAt: -ANSWER_MS }
  const tokens = part(".tokens")
  const press = at => at < view.data.own.length ? take(view, at) : put(view, at)
  const cell = event => view.cells.indexOf(event.target.closest("button"))
  tokens.onpointerdown = event => {
    if (event.button || cell(event) < 0) return
    event.target.releasePointerCapture(event.pointerId) // of a finger: it is to reach the lower tokens
    if (cell(event) < view.data.own.length) take(view, cell(event))
  }
  tokens.onpointermove = event => {
    if (view.taken === null) return
    Object.assign(view, { over: cell(event), pointer: [event.clientX, event.clientY] })
    paint(view)
  }
  tokens.onpointerup = event => { if (!event.button && cell(event) >= view.data.own.length) put(view, cell(event)) }
  tokens.onclick = event => { if (!event.detail && cell(event) >= 0) press(cell(event)) } // Enter and Space
  tokens.onkeydown = event => {
    if (event.key === "Escape") take(view, null)
    else walk(event, view.cells, view.data.own.length)
  }
  new ResizeObserver(() => paint(view)).observe(tokens)
  return view
}

function build(view, shape) {
  const { data, part } = view, { other, own } = data
  Object.assign(view, { shape, taken: null })
  view.cells = [...other, ...own].map((piece, at) => {
    const cell = make("button", visible(piece) || "∙", at < own.length ? "source" : ""), i = at % own.length
    cell.tabIndex = at ? -1 : 0
    cell.classList.toggle("differs", other[i] !== own[i])
    cell.ariaLabel = cell.title = `“${visible(piece)}”, position ${i} of ${at < own.length ? "the other" : "this"} prompt`
    return cell
  })
  part(".tokens").ariaLabel = "The other prompt, and this one below it. Arrow keys move, Enter chooses, Escape cancels."
  part(".tokens").replaceChildren(...own.map((_, i) => {
    const column = make("div", "", "column")
    column.append(view.cells[i], view.cells[own.length + i])
    return column
  }))
}

function take(view, at) {
  Object.assign(view, { taken: at, over: null, pointer: null })
  paint(view)
}

function put(view, at) {
  view.pair = [view.taken ?? view.pair[0], at - view.data.own.length]
  take(view, null)
  tellRelease(view, { from: view.pair[0], to: view.pair[1] })
}

function paint(view) {
  const { cells, data, part, taken } = view, n = data.own.length
  const from = taken ?? view.pair[0], to = taken !== null ? view.over : n + view.pair[1]
  cells.forEach((cell, at) => {
    cell.ariaPressed = String(at === from || (taken === null && at === to))
    cell.classList.toggle("over", taken !== null && at >= n && at === to)
  })
  part(".note").textContent = taken === null
    ? "Drag a token of the other prompt (above) onto one of this prompt (below), or choose one after the other."
    : "Choose its place in this prompt, below. Escape cancels."
  const frame = part(".pair").getBoundingClientRect(), of = cell => cell.getBoundingClientRect()
  const [start, end] = [of(cells[from]), to >= n && cells[to] ? of(cells[to]) : null]
  const [x, y] = [start.left + start.width / 2 - frame.left, start.bottom - frame.top]
  const [u, v] = end ? [end.left + end.width / 2 - frame.left, end.top - frame.top - 2]
    : view.pointer ? [view.pointer[0] - frame.left, view.pointer[1] - frame.top] : [x, y]
  const bend = Math.min(16, Math.abs(v - y) / 2)
  part("path").setAttribute("d", `M${x} ${y}C${x} ${y + bend} ${u} ${v - bend} ${u} ${v}m-4 -6l4 6l4 -6`)
}
