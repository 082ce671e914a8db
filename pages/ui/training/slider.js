// The slider of training: it writes its tokens into a field of the page, which charts and the tinted text listen to, so
// that they move with no run of the page; it reports to Python when it is released or rests, and when playing ends.
const FINE = 1000, REST_MS = 350, FRAME_MS = 160, WATCH_MS = 200

export default function (mount) {
  const { data } = mount, view = viewOf(mount, begin)
  if (!view.moving && view.timer === null && !isStale(view)) {
    view.number = data.seen
    view.at = nearest(data.stops, data.value)
  }
  show(view)
  view.watch ??= setInterval(() => tell(view), WATCH_MS) // the field may appear later than this, and be replaced
  return () => { clearTimeout(view.rest); stop(view); clearInterval(view.watch); view.watch = null }
}

function begin(part, data) {
  const view = { input: part("input"), play: part(".play"), number: data.seen, toldAt: -ANSWER_MS, at: 0,
                 moving: false, down: false, rest: null, timer: null, watch: null }
  const { input, play } = view
  input.onpointerdown = () => { view.down = true; stop(view) }
  input.onpointerup = input.onpointercancel = () => { view.down = false; if (view.moving) letGo(view) }
  input.oninput = () => {
    view.moving = true
    view.at = nearest(view.data.stops, view.data.high * input.value / FINE)
    show(view)
    wait(view)
  }
  input.onkeydown = event => {
    const n = view.data.stops.length, far = Math.max(1, Math.round(n / 10))
    const to = { PageUp: view.at + far, PageDown: view.at - far }[event.key] ?? step(event, view.at, n, -1)
    if (to === undefined) return
    event.preventDefault() // from snapshot to snapshot, at any spacing
    stop(view)
    Object.assign(view, { moving: true, at: within(to, n) })
    show(view)
    wait(view)
  }
  play.onclick = () => {
    if (view.timer !== null) {
      stop(view)
      letGo(view)
      return
    }
    const last = view.data.stops.length - 1
    if (view.at >= last) view.at = 0
    view.moving = true
    view.timer = setInterval(() => {
      view.at = Math.min(last, view.at + 1)
      if (view.at >= last) { stop(view); letGo(view) }
      show(view)
    }, FRAME_MS)
    show(view)
  }
  return view
}

function stop(view) {
  clearInterval(view.timer)
  view.timer = null
}

function wait(view) {
  clearTimeout(view.rest)
  view.rest = setTimeout(() => { if (!view.down) letGo(view) }, REST_MS)
}

function letGo(view) {
  clearTimeout(view.rest)
  tellRelease(view, { tokens: view.data.stops[view.at] })
  show(view)
}

function show(view) {
  const { data, input, part, play } = view, tokens = data.stops[view.at]
  if (!view.down) input.value = Math.round(FINE * tokens / data.high)
  part("output").textContent = inTokens(tokens)
  input.ariaValueText = `${inTokens(tokens)} tokens`
  play.textContent = view.timer === null ? "▶ Play" : "■ Stop"
  play.ariaLabel = view.timer === null ? "Play training" : "Stop"
  tell(view)
}

// Writes the moment into the field, which notifies its listeners.
function tell({ data, at }) {
  const field = document.getElementById(data.field), tokens = data.stops[at]
  if (!field || field.value === String(tokens)) return
  field.value = tokens
  field.dispatchEvent(new Event("input", { bubbles: true }))
}
