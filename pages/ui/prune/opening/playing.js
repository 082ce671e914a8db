// The opening story: four steps over the page, played once for each number that Python sends. Any input stops it.
const CROSS_MS = 750, DRAW_MS = 950, FIRST_COPY_MS = 16, SECOND_COPY_MS = 42
const FOLLOW_MS = 200, LETTER_AREA = 0.96 // of a letter with its share of the line, in squares of the font's size
const CLICK_MS = 800 // at most, from pressing to releasing
const INPUTS = ["pointerdown", "keydown", "wheel", "touchstart"]
const MODIFIERS = ["Shift", "Control", "Alt", "Meta"]
const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches
const inPercent = share => `${Math.round(100 * share)}%`

export default function ({ data, parentElement, setTriggerValue }) {
  const view = viewOf({ data, parentElement, setStateValue: setTriggerValue }, begin)
  const last = (window.headroomOpening ??= { number: 0, isClosed: false }) // of this tab, whatever is mounted
  if (data.number > last.number) {
    Object.assign(last, { number: data.number, isClosed: false })
    build(view)
    if (data.asked || !isStill()) play(view)
    else end(view, "still")
  } else if (view.root.dataset.state === "idle") {
    build(view)
    end(view, last.isClosed ? "closed" : "ended")
  }
  return () => { halt(view); view.resizes.disconnect() }
}

function begin(part) {
  const root = part(".opening"), view = { root, timers: [], skippedAt: -CLICK_MS }
  view.input = event => {
    if (event.type === "keydown" && MODIFIERS.includes(event.key)) return
    if (event.type !== "wheel" && event.composedPath().includes(part(".again"))) view.skippedAt = event.timeStamp
    end(view, "stopped")
  }
  view.changed = event => { if (!event.composedPath().includes(root)) close(view) }
  view.escape = event => { if (event.key === "Escape") close(view) }
  view.resizes = new ResizeObserver(() => view.data && place(view))
  view.resizes.observe(root)
  part(".prune").onclick = () => {
    close(view)
    focusOn(document.querySelector('[class*="st-key-prune_"][class*="-drag"]'))
  }
  part(".learn").onclick = () => { view.tell("learn", true) }
  part(".model").onclick = () => {
    window.headroomShowSidebar()
    setTimeout(() => focusOn(document.querySelector(".st-key-model")), 50)
  }
  part(".again").onclick = event => { // the same click has just stopped it where the button said so
    if (event.timeStamp > view.skippedAt + CLICK_MS) play(view)
  }
  part(".close").onclick = () => close(view)
  return view
}

// Where the slider, or the field of the model, takes keys.
function focusOn(element) {
  const roots = [element, ...element.querySelectorAll("*")].map(each => each.shadowRoot).filter(Boolean)
  const field = [element, ...roots].map(each => each.querySelector("input")).find(Boolean)
  field.scrollIntoView({ block: "nearest" })
  field.focus({ preventScroll: true, focusVisible: true })
}

function build({ data, part, root }) {
  const grid = part(".grid"), ramp = colorsOf(root, "--st-chart-sequential-colors"), shown = []
  grid.style.setProperty("--columns", data.columns)
  data.scores.forEach((score, at) => {
    if (at % data.columns === 0) shown.push(make("span", `${at / data.columns}`, "label"))
    const cell = make("i", "")
    cell.style.background = mixed(ramp, Math.max(score, 0))
    shown.push(cell)
  })
  grid.replaceChildren(...shown)
  part("figcaption").replaceChildren(make("span", "Prefix matching by layer and head: 0"), make("i", ""), make("span", "1"))
  part("figcaption i").style.background = `linear-gradient(to right, ${ramp.join(",")})`
  part(".title").textContent = data.title
  part(".text").replaceChildren(...data.pieces.map((piece, at) => {
    const span = make("span", tame(piece), "token")
    tint(span, data.added[at], data.full_nats, true)
    span.style.setProperty("--after", `${lightsAt(data, at)}ms`)
    return span
  }))
  for (const [name, share] of [["full", data.accuracy.full.share], ["chance", data.chance]]) {
    part(`.gauge .${name}`).style.left = `${100 * share}%`
    part(`.gauge .${name}`).dataset.says = `${name === "full" ? "full model" : "chance"} ${inPercent(share)}`
  }
}

function lightsAt({ repeats_at: second }, at) {
  return 700 + FIRST_COPY_MS * Math.min(at, second) + SECOND_COPY_MS * Math.max(0, at - second)
}

function play(view) {
  halt(view)
  const { data, root } = view, steps = stepsOf(view)
  root.dataset.state = "playing"
  view.part(".again").textContent = "Skip (Esc)"
  root.dataset.step = "0"
  follow(view)
  reset(view)
  const total = steps.reduce((sum, step) => sum + step.ms, 0)
  view.part(".time i").style.setProperty("--total", `${total}ms`)
  for (const kind of INPUTS) window.addEventListener(kind, view.input, { capture: true, passive: true })
  let at = 0
  for (const [number, step] of steps.entries()) {
    later(view, at, () => {
      root.dataset.step = number + 1
      view.part(".sentence").textContent = view.part(".said").textContent = data.sentences[number]
      step.begin()
    })
    at += step.ms
  }
  later(view, at, () => end(view, "ended"))
}

function reset(view) {
  cross(view, [], 0)
  tell(view, `All ${view.data.scores.length} heads`, view.data.accuracy.full)
  view.part(".sentence").textContent = ""
}

function stepsOf(view) {
  const { data } = view, { full, removed, draws } = data.accuracy, k = data.heads.length
  const several = `${k} heads drawn at random`
  return [
    { ms: 1800 + CROSS_MS * k, begin: () => cross(view, data.heads, CROSS_MS) },
    { ms: 4400, begin: () => tell(view, `Without the ${k} induction heads`, removed, full) },
    { ms: 700 + DRAW_MS * draws.length, begin: () => draws.forEach((each, number) => later(view, DRAW_MS * number, () => {
      cross(view, data.draws[number], 60)
      tell(view, `Without ${several}, draw ${number + 1} of ${draws.length}`, each, full)
    })) },
    { ms: 2600 + lightsAt(data, data.pieces.length), begin: () => tellOfText(view) },
  ]
}

// Crosses fall on these heads, one after another.
function cross({ part }, heads, everyMs) {
  const cells = [...part(".grid").querySelectorAll("i")]
  for (const cell of cells) cell.classList.remove("pruned")
  part(".grid").getBoundingClientRect() // so that a cross on the same head falls again
  heads.forEach((head, number) => {
    cells[head].style.setProperty("--after", `${(everyMs > 100 ? 700 : 0) + everyMs * number}ms`)
    cells[head].classList.add("pruned")
  })
}

function tell(view, what, accuracy, before) {
  const lost = before && before.share - accuracy.share > 0.2
  const [low, high] = accuracy.interval
  view.part(".gauge .level").style.width = `${100 * accuracy.share}%`
  value(view, `${what}: questions answered right`, inPercent(accuracy.share), "", lost)
  view.part(".detail").textContent = `${view.data.n} questions, 95% interval ${low} to ${high}%`
}

function tellOfText(view) {
  const { full, pruned } = view.data.loss
  value(view, "Without the induction heads: loss added to a token of the second copy", view.data.more_nats, "nats", true)
  const [first, second] = [0, 1].map(copy => `${full[copy]} → ${pruned[copy]}`)
  view.part(".detail").textContent = `Mean loss: second copy ${second} nats, first copy ${first}`
}

function value(view, what, words, unit, isLoss) {
  const at = view.part(".value"), next = make("div", words, "value")
  if (unit) next.append(make("small", unit))
  next.classList.toggle("loss", Boolean(isLoss))
  at.replaceWith(next) // a new element plays its animation
  view.part(".what").textContent = what
}

function later(view, ms, run) {
  view.timers.push(setTimeout(run, ms))
}

function halt(view) {
  for (const timer of view.timers) clearTimeout(timer)
  view.timers = []
  window.removeEventListener("input", view.changed, true)
  window.removeEventListener("keydown", view.escape, true)
  for (const kind of INPUTS) window.removeEventListener(kind, view.input, { capture: true })
}

function end(view, state) {
  halt(view)
  view.root.dataset.state = state
  view.part(".again").textContent = "Play again"
  place(view)
  if (state === "closed") return
  window.addEventListener("input", view.changed, true)
  window.addEventListener("keydown", view.escape, true) // from the next key on: not called for the one that ended it
  watch(view, location.search)
}

function close(view) {
  window.headroomOpening.isClosed = true
  end(view, "closed")
}

// The entrances leave when a control is changed: a field reports that at once, any other control in the address.
function watch(view, before) {
  if (location.search !== before) close(view)
  else later(view, FOLLOW_MS, () => watch(view, before))
}

// The stage reaches to the lower end of the window, the text fills its part of it, and the entrances are in the middle of
// the page's column.
function place({ root, part, data }) {
  const { left, width, top } = root.getBoundingClientRect()
  root.style.setProperty("--middle", `${left + width / 2}px`)
  part(".stage").style.setProperty("--height", `${innerHeight - top}px`)
  const text = part(".text"), letters = data.pieces.join("").length
  text.style.fontSize = `${Math.max(12, Math.min(26, Math.sqrt(text.clientWidth * text.clientHeight / (LETTER_AREA * letters))))}px`
}

// While the page above it is still being drawn, the stage moves.
function follow(view) {
  place(view)
  later(view, FOLLOW_MS, () => follow(view))
}
