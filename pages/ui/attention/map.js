// The map of all heads: thumbnails, tint, and which ones are chosen. One module with view.js.

const LEAST_PX = 22 // smaller patterns cannot be told apart: the map scrolls

// Size of a cell in pixels: all heads fit the map's width, and all layers its height (view.css) if that leaves them visible.
function cellSize(layers, heads) {
  const [width, most] = window.innerWidth < 1700 ? [288, 38] : [384, 62] // as the column in view.css
  const across = Math.floor(width / heads) - 2, rem = parseFloat(getComputedStyle(document.documentElement).fontSize)
  const down = Math.floor((window.innerHeight - 21 * rem) / layers) - 2
  return Math.max(LEAST_PX, Math.min(most, across, down))
}

function setHeads(view) {
  const { layers, heads, pruned } = view.seen, size = cellSize(layers, heads)
  view.screen.classList.toggle("deep", layers * (size + 2) > 240) // the readout is then under the text, not under the map
  view.map.style.setProperty("--cell", size + "px")
  view.map.style.gridTemplateColumns = `max-content repeat(${heads}, ${size}px)`
  view.cells = Array.from({ length: layers * heads }, (_, c) => {
    const cell = make("button", ""), head = `L${Math.floor(c / heads)}H${c % heads}`
    cell.dataset.head = head
    if (pruned.includes(head)) cell.classList.add("pruned")
    cell.append(document.createElement("canvas"))
    return cell
  })
  const names = Array.from({ length: layers }, (_, l) => labelOf(`L${l}`))
  // Every column has its number if the longest one, 7 pixels a digit, fits its cell; else every fourth.
  const focused = view.map.querySelector(":focus")?.dataset.head // redrawn while the user moves through it by keyboard
  view.map.replaceChildren(...columnsOf(heads, size < 7 * `${heads - 1}`.length + 4 ? 4 : 1, "across"), ...rowsOf(view.cells, names, heads))
  view.cells.find(cell => cell.dataset.head === focused)?.focus()
}

function drawHeads(view) {
  const side = view.seen.side, ink = getComputedStyle(view.screen).color.match(/\d+/g).map(Number)
  view.cells.forEach((cell, c) => {
    const canvas = cell.firstChild
    canvas.width = canvas.height = side
    const image = new ImageData(side, side)
    for (let p = 0; p < side * side; p++) image.data.set([ink[0], ink[1], ink[2], view.seen.thumbnails[c * side * side + p]], 4 * p)
    canvas.getContext("2d").putImageData(image, 0, 0)
  })
  tintHeads(view)
}

// The token of the tint, the blue and the sum: the one pointed at, or the one after it.
function asked(view) {
  if (view.at === null) return null
  const t = view.mode === "destination" && view.about === "next" ? view.at + 1 : view.at
  return t < view.spans.length ? t : null
}

const raised = ({ seen }, c, t) => seen.raised[c * seen.pieces.length + t] * seen.unit

function tintHeads(view) {
  const { seen } = view, t = asked(view)
  const byToken = view.tint === "raised" || seen.scores === undefined
  const values = view.cells.map((_, c) => (byToken ? (t === null ? 0 : raised(view, c, t)) : seen.scores[c]))
  const full = byToken ? Math.max(0.01, ...values.map(Math.abs)) : 1
  view.cells.forEach((cell, c) => {
    cell.classList.toggle("raised", byToken)
    cell.style.setProperty("--tint", Math.min(100, (100 * Math.abs(values[c])) / full).toFixed(0) + "%")
    cell.classList.toggle("lowered", byToken && values[c] < 0)
    const what = byToken ? `${nats(values[c], true)} nats` : `induction score ${values[c].toFixed(2)}`
    cell.title = `${cell.dataset.head}: ${what}${cell.classList.contains("pruned") ? ", pruned" : ""}`
    cell.ariaLabel = cell.title
  })
  const about = byToken ? (t === null ? "" : `full color: ${full.toFixed(2)} nats on ${quoted(seen.pieces[t])}; blue lowers it`) : ""
  view.screen.querySelector(".full").textContent = about
}

function markHeads(view) {
  for (const cell of view.cells) {
    cell.ariaPressed = String(view.heads.includes(cell.dataset.head))
    cell.tabIndex = cell.dataset.head === (view.heads.at(-1) ?? "L0H0") ? 0 : -1
  }
}

// Scrolls only the map, to the head chosen last.
function showHead(view) {
  const cell = view.cells.find(one => one.dataset.head === view.heads.at(-1)), { map } = view
  if (!cell) return
  const above = map.scrollTop + cell.offsetHeight + 6, below = map.scrollTop + map.clientHeight - cell.offsetHeight
  if (cell.offsetTop < above || cell.offsetTop > below) map.scrollTop = cell.offsetTop - map.clientHeight / 2
}

function choose(view, head, more) {
  const others = view.heads.filter(name => name !== head)
  const heads = more ? (others.length < view.heads.length && others.length ? others : [...others, head]) : [head]
  if (heads.join() === view.heads.join()) return
  view.heads = heads
  view.number++
  markHeads(view)
  showHead(view)
  paint(view)
  clearTimeout(view.timer) // a held key sends a few requests a second, for the head it has reached
  view.timer = setTimeout(() => {
    view.askedAt = Date.now()
    view.tell("heads", { names: heads, number: view.number })
  }, Math.max(0, 200 - (Date.now() - view.askedAt)))
}

function chooseNext(view, by) {
  const c = view.cells.findIndex(cell => cell.dataset.head === view.heads.at(-1))
  const to = view.cells[(c + by + view.cells.length) % view.cells.length]
  if (view.map.querySelector(":focus")) to.focus()
  choose(view, to.dataset.head, false)
}
