// Tokens as text, painted with the tokens the chosen heads look at (violet) and those whose logit that raised (orange), and
// a map of all heads. Everything from Python is set as textContent, so a text is never interpreted as markup.
const TYPES = { u1: Uint8Array, u2: Uint16Array, i2: Int16Array, f4: Float32Array }
const N_LISTED = 5, TOLD_MS = 200
const SWITCHES = ["mode", "about", "tint"], USUAL = ["destination", "next", "score"]
const ARRIVED = "headroom-attention" // event by which the other component delivers a pattern

export default function (mount) {
  const { data } = mount, view = viewOf(mount, begin)
  if (view.bytes !== data) load(view, data)
  drawHeads(view) // always redrawn: the thumbnails' ink follows the theme
  take(view)
  return () => view.stop()
}

function unpack(bytes) {
  const { buffer } = bytes.slice() // a copy begins at offset 0, as typed arrays require
  const head = new DataView(buffer).getUint32(0, true)
  const found = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, head)))
  for (const [name, [type, at, count]] of Object.entries(found.arrays)) found[name] = new TYPES[type](buffer, 4 + head + at, count)
  return found
}

function begin(part) {
  const view = { page: document, number: 0, heads: [], over: null, locked: null, at: null, spans: [], cells: [],
                 mode: "destination", about: "next", tint: "score", inside: false, askedAt: 0, reports: 0 }
  for (const name of ["text", "map", "readout", "looked", "raised", "screen"]) view[name] = part(`.${name}`)
  const index = event => view.spans.indexOf(event.target.closest?.("span[role]"))
  view.text.onmousemove = event => { // not "over": a text that appears under a resting mouse keeps its token
    const i = index(event)
    if (i === view.over) return
    view.over = i >= 0 && open(view, i) ? i : null
    if (view.over !== null && view.locked === null) go(view, i)
  }
  view.text.onmouseleave = () => { view.over = null }
  view.text.onclick = event => { const i = index(event); if (i >= 0 && open(view, i)) lock(view, i === view.locked ? null : i, i) }
  view.text.addEventListener("focusin", event => { const i = index(event); if (i >= 0 && view.locked === null) go(view, i) })
  view.screen.onmouseenter = () => { view.inside = true }
  view.screen.onmouseleave = () => { view.inside = false }
  view.screen.onchange = event => { view[event.target.name] = event.target.value; tintHeads(view); paint(view); report(view) }
  view.map.onclick = event => {
    const cell = event.target.closest("button")
    if (cell) choose(view, cell.dataset.head, event.shiftKey || event.ctrlKey || event.metaKey)
  }
  const keys = event => key(view, event)
  const arrived = () => take(view)
  view.page.addEventListener("keydown", keys) // [ and ] work while the mouse points at a token and nothing has the focus
  view.page.addEventListener(ARRIVED, arrived)
  view.stop = () => { view.page.removeEventListener("keydown", keys); view.page.removeEventListener(ARRIVED, arrived) }
  return view
}

// ---- data from Python ----

function load(view, bytes) {
  const old = view.seen, seen = unpack(bytes)
  Object.assign(view, { bytes, seen })
  if (old?.of !== seen.of || old?.rows !== seen.rows) {
    Object.assign(view, { locked: null, at: null, over: null, pattern: null })
    setText(view)
    if (old?.rows !== seen.rows) setSwitches(view, USUAL)
  }
  view.screen.querySelector("[value=score]").disabled = seen.scores === undefined
  setSwitches(view, SWITCHES.map(name => view[name]))
  setHeads(view)
}

// Takes a pattern that belongs to this text; one requested before the last choice is ignored.
function take(view) {
  const bytes = view.page.headroomAttention
  if (bytes && bytes !== view.patternBytes) {
    const pattern = unpack(bytes)
    if (pattern.of === view.seen.of && pattern.number >= view.number) {
      const n = view.seen.pieces.length
      Object.assign(view, { patternBytes: bytes, number: pattern.number, heads: pattern.heads, pattern })
      pattern.attention = whole(pattern, "attention", n, 1 / 65535)
      pattern.nats = whole(pattern, "nats", n, pattern.unit)
      recall(view, pattern.look)
      if (view.at === null) startAt(view, mostRaised(view))
    }
  }
  markHeads(view)
  showHead(view)
  paint(view)
}

// Restores the locked token and the switches from the address, unless the user has changed them since.
function recall(view, look) {
  if (look.number < view.reports) return
  const i = look.token === null ? null : look.token - 1 + view.seen.first
  const known = i !== null && view.spans[i] && open(view, i)
  if (known && i !== view.locked) startAt(view, i)
  view.locked = known ? i : null
  setSwitches(view, look.switches.length === SWITCHES.length ? look.switches : USUAL)
  tintHeads(view)
}

// The switches; none if all are at their defaults.
function changed(view) {
  const values = SWITCHES.map(name => view[name])
  return values.join() === USUAL.join() ? [] : values
}

function setSwitches(view, values) {
  SWITCHES.forEach((name, s) => { view[name] = values[s] })
  const shown = { mode: view.mode, about: view.about, tint: view.seen.scores === undefined ? "raised" : view.tint }
  for (const input of view.screen.querySelectorAll("input")) input.checked = shown[input.name] === input.value
}

// (n, n) numbers, row = destination, of a triangle or of the largest few of each row.
function whole(pattern, name, n, unit) {
  const rows = new Float32Array(n * n), values = pattern[name], sources = pattern[name + "_at"]
  const k = values.length / n
  let next = 0
  for (let d = 0; d < n; d++)
    if (sources) for (let i = 0; i < k; i++, next++) rows[d * n + sources[next]] = values[next] * unit
    else for (let s = 0; s <= d; s++) rows[d * n + s] = values[next++] * unit
  return rows
}

function startAt(view, i) {
  go(view, i)
  const { offsetTop, offsetHeight } = view.spans[i], { clientHeight } = view.text
  view.text.scrollTop = offsetTop + offsetHeight > clientHeight ? offsetTop - clientHeight / 2 : 0 // else the text begins
}

// Where the view opens: among the names that return, the token whose logit these heads raised most.
function mostRaised(view) {
  const n = view.spans.length, { nats } = view.pattern
  const starts = view.seen.starts.filter(t => t > 0 && open(view, t))
  let best = Math.min(1, n - 1), most = -Infinity
  for (const t of starts.length ? starts : Array(n).keys()) {
    if (!t) continue
    let sum = 0
    const d = view.about === "next" ? t : t - 1
    for (let s = 0; s <= d; s++) sum += nats[d * n + s]
    if (open(view, t) && view.seen.pieces[d + 1]?.trim() && sum > most) { most = sum; best = t }
  }
  return best
}

// ---- the text ----

function setText(view) {
  const { seen, text } = view
  view.spans = seen.pieces.map((piece, i) => {
    const span = make("span", "", i < seen.first ? "token begin" : "token")
    span.setAttribute("role", "option")
    span.tabIndex = -1
    if (piece === "") span.append(sign("∙"))
    appendLines(span, piece, EVERY_SIGN)
    if (!open(view, i)) span.classList.add("closed")
    span.ariaLabel = `${readable(piece)}, token ${i + 1 - seen.first}`
    return span
  })
  text.replaceChildren(...view.spans)
  text.classList.toggle("some", seen.rows !== "")
  text.ariaLabel = `${seen.name}, ${view.spans.length} tokens. Arrow keys move, Enter locks, Escape unlocks, [ and ] change the head.`
  text.scrollTop = 0
  const first = view.spans.findIndex((_, i) => open(view, i))
  if (first >= 0) view.spans[first].tabIndex = 0
}

// Whether a token can be hovered: in a text of labels, only the labels.
const open = ({ seen }, i) => !seen.rows || seen.pieces[i].trim() === seen.rows

function go(view, i) {
  if (view.spans[view.at]) view.spans[view.at].tabIndex = -1
  for (const span of view.spans) if (span.tabIndex === 0) span.tabIndex = -1
  view.at = i
  view.spans[i].tabIndex = 0
  paint(view)
}

function lock(view, locked, i) {
  view.locked = locked
  go(view, i)
  report(view)
}

// Reports token and switches to Python, once per burst of keys.
function report(view) {
  view.reports++
  clearTimeout(view.telling)
  view.telling = setTimeout(() => {
    const token = view.locked === null ? null : view.locked + 1 - view.seen.first
    view.tell("look", { token, switches: changed(view), number: view.reports })
  }, TOLD_MS)
}

function key(view, event) {
  const target = event.composedPath()[0]
  const ours = view.screen.contains(target), inText = view.text.contains(target)
  if (!ours && /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable) return
  const onMap = view.map.contains(target)
  const free = inText || (!ours && view.inside) // nothing has the focus, the mouse points at the view
  if (event.key === "[" || event.key === "]") chooseNext(view, event.key === "]" ? 1 : -1)
  else if (onMap) { if (!walk(event, view.cells, view.seen.heads)) return }
  else if (event.key === "Escape" && (ours || free) && view.locked !== null) lock(view, null, view.over ?? view.locked)
  else if (!free || view.at === null || event.ctrlKey || event.metaKey || event.altKey) return
  else if (event.key === "Enter") lock(view, view.locked === view.at ? null : view.at, view.at)
  else {
    const to = neighbour(view, event)
    if (to === undefined) return
    view.over = null // the user is on the keyboard now
    if (view.locked !== null) lock(view, to, to)
    else go(view, to)
    if (inText) view.spans[to].focus()
    else view.spans[to].scrollIntoView({ block: "nearest" })
  }
  event.preventDefault()
  event.stopPropagation()
}

function neighbour(view, event) {
  const turn = { ArrowDown: 1, ArrowUp: -1 }[event.key], isOpen = i => open(view, i)
  if (turn) return nextLine(view.spans, view.at, turn, null, isOpen)
  const places = [...view.spans.keys()].filter(isOpen), to = step(event, places.indexOf(view.at), places.length)
  return to === undefined ? to : places[within(to, places.length)]
}

// ---- attention, raised logits, and the numbers ----

function paint(view) {
  const { at, spans, pattern } = view
  const waiting = !pattern || pattern.heads.join() !== view.heads.join()
  view.screen.classList.toggle("waiting", waiting)
  if (!pattern || at === null || !spans[at]) return
  const n = spans.length, looks = new Float32Array(n), raises = new Float32Array(n)
  const shift = view.mode === "destination" && view.about === "next" ? 0 : 1 // it is read at the position before
  for (let i = 0; i < n; i++)
    if (view.mode === "destination") {
      looks[i] = pattern.attention[at * n + i]
      raises[i] = at >= shift ? pattern.nats[(at - shift) * n + i] : 0
    } else if (open(view, i)) {
      looks[i] = pattern.attention[i * n + at]
      raises[i] = i ? pattern.nats[(i - 1) * n + at] : 0
    }
  spans.forEach((span, i) => {
    span.style.setProperty("--tint", strength(looks[i]))
    span.style.setProperty("--raises", thickness(raises[i]))
    span.classList.toggle("at", i === at)
    span.classList.toggle("locked", i === view.locked)
    span.classList.toggle("predicted", view.mode === "destination" && i === asked(view))
    span.ariaSelected = String(i === view.locked)
  })
  if (view.tint === "raised" || view.seen.scores === undefined) tintHeads(view)
  drawLegend(view)
  showReadout(view, looks, raises, waiting)
}
