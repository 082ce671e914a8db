// A slider that reports drags to Python: at intervals while it moves, and once when released or at rest. With Shift,
// arrow keys move it by 1%.
const REPORT_MS = 80, REST_MS = 150, LATE_MS = 30
const KEY_REST_MS = 60 // a held key repeats about every 30 ms
const STALE = "headroom-stale" // class of the page while Python's drawing is of another level than the slider's
const LOST_MS = 1500 // after this, a rest that was not noticed is reported if nothing moves here

export default function (mount) {
  const { data } = mount, view = viewOf(mount, begin), { part } = view
  part("label").textContent = data.label
  part(".more").textContent = data.more
  part(".tip").textContent = data.help
  part(".help").ariaLabel = `About: ${data.label}`
  part(".note").hidden = !data.live
  part(".level").classList.toggle("large", data.live)
  const isHeard = view.number === data.seen
  if (!view.down && !view.moving && isHeard) set(view, data.value)
  show(view)
  clearTimeout(view.lost)
  if (data.hand !== null || !isHeard) view.lost = setTimeout(() => tellAgain(view), LOST_MS)
  return () => { clearTimeout(view.report); clearTimeout(view.rest); clearTimeout(view.lost); markBehind(view, false) }
}

function begin(part, data) {
  const view = { input: part("input"), number: data.seen, toldAt: -ANSWER_MS, lastReport: 0, movedAt: 0,
                 down: false, moving: false, reported: false, report: null, rest: null, lost: null }
  view.input.onpointerdown = () => { view.down = true }
  view.input.onpointerup = view.input.onpointercancel = () => { view.down = false; if (view.moving) letGo(view) }
  view.input.onpointermove = () => { view.movedAt = performance.now() } // a slow drag stays between two steps for long
  view.input.oninput = () => {
    Object.assign(view, { moving: true, movedAt: performance.now() })
    show(view)
    if (view.rest === null) rest(view)
    if (view.data.live) view.report ??= setTimeout(() => report(view), Math.max(0, view.lastReport + REPORT_MS - performance.now()))
  }
  view.input.onkeydown = event => { if (event.shiftKey) view.input.step = 1 }
  return view
}

function report(view) {
  view.report = null
  view.lastReport = performance.now()
  view.reported = true
  view.tell("hand", { percent: +view.input.value, moving: true, number: view.number + 1 })
}

// A late timer means that charts were being drawn and movements are queued after it, so the rest period restarts.
function rest(view, due = view.movedAt + still(view)) {
  view.rest = setTimeout(() => {
    const now = performance.now(), left = view.movedAt + still(view) - now
    if (now > due + LATE_MS) rest(view, now + still(view))
    else if (left > 0) rest(view)
    else letGo(view)
  }, due - performance.now())
}

function still(view) {
  return view.down ? REST_MS : KEY_REST_MS
}

// Reports the level again: where the slider was released if Python may have lost that, else where Python last saw it.
function tellAgain(view) {
  const { data, number, movedAt, toldAt } = view, isHeard = number === data.seen
  const left = Math.max(movedAt + LOST_MS, isHeard ? 0 : toldAt + ANSWER_MS) - performance.now()
  if (left > 0) {
    view.lost = setTimeout(() => tellAgain(view), left)
    return
  }
  if (isHeard && !view.down) view.input.value = data.hand // while held, it stays at the pointer
  view.reported = true
  show(view)
  letGo(view)
}

function letGo(view) {
  clearTimeout(view.report)
  clearTimeout(view.rest)
  Object.assign(view, { report: null, rest: null, moving: false })
  const isHeard = view.number === view.data.seen // else an earlier release, of another value, is still under way
  if (!view.reported && isHeard && +view.input.value === view.data.value) return // back at its value, never reported
  view.reported = false
  tellRelease(view, { percent: +view.input.value, moving: false })
}

// A level between the steps is kept.
function allow({ input, data }, value) {
  input.step = value % data.step ? 1 : data.step
}

function set(view, value) {
  allow(view, value)
  if (+view.input.value !== value) view.input.value = value
  view.number = view.data.seen
}

function show(view) {
  const { part, input, data } = view, text = data.texts[input.value] ?? ""
  markBehind(view, +input.value !== (data.hand ?? data.value))
  nameHand(text)
  const percent = !data.more ? `${input.value}%` : +input.value ? `${input.value}% more` : ""
  const level = data.live || !text ? percent : `${percent} ${text}`
  part("output").textContent = level
  part("output").classList.toggle("wide", level !== `${input.value}%`)
  part(".note").textContent = text
  part(".track").style.setProperty("--at", input.value / 100)
  input.ariaValueText = level + (data.live && text ? `, ${text}` : "")
}

// The share that the text of a level states stands for the figure, while that is of another level (streamlit_internals.css).
function nameHand(text) {
  const [, kind, share] = text.match(/(measured|estimate) (\S+%)/) ?? []
  const shown = !share ? "…" : kind === "estimate" ? `≈ ${share}` : share
  document.documentElement.style.setProperty("--hand", JSON.stringify(shown))
}

// Marks the drawings that follow the slider as out of date, if that lasts (screens.css).
function markBehind(view, is) {
  const all = (window.headroomBehind ??= new Set())
  if (is) all.add(view)
  else all.delete(view)
  document.documentElement.classList.toggle(STALE, all.size > 0)
}
