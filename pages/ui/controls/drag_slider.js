// A slider that tells Python of the hand: now and then while it moves, and once when it lets go or rests. A number that
// is typed into its box counts as letting go there.
const VIEWS = new WeakMap() // what one mount remembers: the browser keeps it while Python sends new numbers
const REPORT_MS = 80, REST_MS = 150, LATE_MS = 30, ANSWER_MS = 5000
const KEY_REST_MS = 60 // a held key repeats about every 30 ms
const BEHIND = "headroom-behind" // of the page, while what Python has drawn is of another level than the hand's
const LOST_MS = 1500 // after which a release that Python still waits for, though nothing moves here, is sent again

export default function ({ data, parentElement, setStateValue }) {
  let view = VIEWS.get(parentElement)
  if (!view) VIEWS.set(parentElement, (view = begin(parentElement, data)))
  Object.assign(view, { data, tell: setStateValue })
  const { part, input } = view
  part("label").textContent = data.label
  part(".tip").textContent = data.help
  part(".help").ariaLabel = `About: ${data.label}`
  part(".note").hidden = data.texts === null
  view.box.ariaLabel = data.label
  view.box.step = data.step
  const behind = data.seen !== view.number && performance.now() < view.toldAt + ANSWER_MS // it answers an older report
  if (!view.down && !view.moving && !behind) set(view, data.value)
  show(view)
  clearTimeout(view.lost)
  if (data.hand !== null) view.lost = setTimeout(() => letGoAt(view, data.hand), LOST_MS)
  return () => { clearTimeout(view.report); clearTimeout(view.rest); clearTimeout(view.lost); markBehind(view, false) }
}

function begin(root, data) {
  const part = name => root.querySelector(name)
  const view = { part, input: part("input"), box: part(".box"), typing: false, number: data.seen, toldAt: -ANSWER_MS, lastReport: 0, movedAt: 0,
                 down: false, moving: false, told: false, report: null, rest: null, lost: null }
  view.input.onpointerdown = () => { view.down = true }
  view.input.onpointerup = view.input.onpointercancel = () => { view.down = false; if (view.moving) letGo(view) }
  view.input.onpointermove = () => { view.movedAt = performance.now() } // a slow hand is between two steps for long
  view.input.oninput = () => {
    Object.assign(view, { moving: true, movedAt: performance.now() })
    show(view)
    if (view.rest === null) rest(view)
    if (view.data.live) view.report ??= setTimeout(() => report(view), Math.max(0, view.lastReport + REPORT_MS - performance.now()))
  }
  view.box.oninput = () => { view.typing = true }
  view.box.onchange = () => typed(view)
  view.box.onblur = () => { view.typing = false; show(view) }
  return view
}

function typed(view) {
  const { input, box, data } = view
  view.typing = false
  if (box.value !== "") { // nothing, or not a number: the level stays
    const value = Math.max(0, Math.min(100, Math.round(+box.value)))
    allow(view, value)
    input.value = value
  }
  show(view)
  letGo(view)
}

function report(view) {
  view.report = null
  view.lastReport = performance.now()
  view.told = true
  view.tell("hand", { percent: +view.input.value, moving: true, number: view.number + 1 })
}

// A timer that comes late says that charts were being drawn: movements wait behind it, so the rest begins anew.
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

function letGoAt(view, percent) {
  const left = view.movedAt + LOST_MS - performance.now()
  if (left > 0) {
    view.lost = setTimeout(() => letGoAt(view, percent), left)
    return
  }
  if (!view.down) view.input.value = percent // a held one is where the hand is
  view.told = true
  show(view)
  letGo(view)
}

function letGo(view) {
  clearTimeout(view.report)
  clearTimeout(view.rest)
  Object.assign(view, { report: null, rest: null, moving: false })
  if (!view.told && +view.input.value === view.data.value) return // back where it was, and nobody has heard of it
  Object.assign(view, { told: false, number: view.number + 1, toldAt: performance.now() })
  view.tell("hand", { percent: +view.input.value, moving: false, number: view.number })
}

// A number typed in between the steps stays what it is.
function allow({ input, data }, value) {
  input.step = value % data.step ? 1 : data.step
}

function set(view, value) {
  allow(view, value)
  if (+view.input.value !== value) view.input.value = value
  view.number = view.data.seen
}

function show(view) {
  const { part, input, box, data } = view, text = data.texts?.[input.value] ?? ""
  if (!view.typing) box.value = input.value
  markBehind(view, +input.value !== (data.hand ?? data.value))
  part("output").textContent = `${input.value} %`
  part(".note").textContent = text
  part(".track").style.setProperty("--at", input.value / 100)
  input.ariaValueText = `${input.value} %${text ? ", " + text : ""}`
}

// What follows the hand is shown as not up to date, if that lasts (screens.css).
function markBehind(view, is) {
  const all = (window.headroomBehind ??= new Set())
  if (is) all.add(view)
  else all.delete(view)
  document.documentElement.classList.toggle(BEHIND, all.size > 0)
}
