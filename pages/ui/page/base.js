// What components share; each has its own script behind this. Text goes in as textContent: what it says is never markup.
const MOUNTS = new WeakMap() // state of a mount: kept in the browser while Python sends new numbers
const ANSWER_MS = 5000

// The state of a mount, which `begin` makes of the function that finds its parts, with what Python has just sent.
function viewOf({ data, parentElement, setStateValue }, begin) {
  const part = name => parentElement.querySelector(name)
  if (!MOUNTS.has(parentElement)) MOUNTS.set(parentElement, begin(part, data))
  return Object.assign(MOUNTS.get(parentElement), { part, data, tell: setStateValue })
}

// Whether Python's value answers an older report than the last.
function isStale({ data, number, toldAt }) {
  return data.seen !== number && performance.now() < toldAt + ANSWER_MS
}

// Reports where a slider was released, under the next number.
function tellRelease(view, value) {
  Object.assign(view, { moving: false, number: view.number + 1, toldAt: performance.now() })
  view.tell("hand", { ...value, number: view.number })
}

// Where an arrow key, Home or End leads in a list of `n`, or a grid with rows of `across`; undefined for another key.
function step({ key }, at, n, across = 1) {
  return { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + across, ArrowUp: at - across, Home: 0, End: n - 1 }[key]
}

const within = (at, n) => Math.max(0, Math.min(n - 1, at))

// Moves the focus in a grid of cells; returns whether the key does that.
function walk(event, cells, across) {
  const to = step(event, cells.indexOf(event.composedPath()[0]), cells.length, across)
  if (to === undefined) return false
  event.preventDefault()
  if (!cells[to]) return true
  for (const cell of cells) cell.tabIndex = cell === cells[to] ? 0 : -1
  cells[to].focus()
  return true
}

const labelOf = (text, className = "") => make("i", text, `label ${className}`)

// The cells of a grid with the name of each row at its left; and the numbers of its columns, one in `every`.
const rowsOf = (cells, names, across) => cells.flatMap((cell, at) => at % across ? [cell] : [names[at / across], cell])
const columnsOf = (across, every, className) =>
  [labelOf("", className), ...Array.from({ length: across }, (_, h) => labelOf(h % every ? "" : `${h}`, className))]

// The token nearest to a column (its own, unless given) on the line below (1) or above (-1), of those that are open.
function nextLine(spans, at, turn, column, isOpen = () => true) {
  const box = i => spans[i].getClientRects()[0], from = box(at)
  if (!from) return at + turn
  let best = at, least = Infinity, line = null
  for (let i = at + turn; i >= 0 && i < spans.length; i += turn) {
    const here = isOpen(i) ? box(i) : null
    if (!here || Math.abs(here.top - from.top) < from.height / 2) continue
    line ??= here.top
    if (Math.abs(here.top - line) > from.height / 2) break
    const away = Math.abs(here.left - (column ?? from.left))
    if (away < least) { least = away; best = i }
  }
  return best
}

const SIGNS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u2028\u2029\u202a-\u202e\u2060\u2066-\u2069\ufeff]/g

// Characters that show nothing or would turn the line around, as signs.
function tame(text, signs = SIGNS) {
  return text.replace(signs, sign => `⟨${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`)
}

// Blanks too.
function visible(text, signs = SIGNS) {
  return tame(text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥"), signs)
}

function make(tag, text, className) {
  const element = document.createElement(tag)
  element.textContent = text
  if (className) element.className = className
  if (tag === "button") element.type = tag
  return element
}

// A sign in a text, which is not read aloud.
function sign(text) {
  const element = make("i", text)
  element.ariaHidden = "true"
  return element
}

// Appends text with its line ends as signs.
function appendLines(element, text, signs) {
  text.split("\n").forEach((line, i) => element.append(...(i ? [sign("↵"), "\n"] : []), tame(line, signs)))
}

// A line of a readout.
function row(...parts) {
  const line = make("div", "", "row")
  line.append(...parts)
  return line
}

function nats(value, signed) {
  const text = Math.abs(value).toFixed(2)
  return (value < 0 && +text ? "−" : signed && +text ? "+" : "") + text
}

// Tints a token by its loss, or by the change in it, as a share of the value that gets full color.
function tint(span, value, full, isChange) {
  span.classList.toggle("loss", !isChange)
  span.classList.toggle("worse", isChange && value > 0)
  span.classList.toggle("better", isChange && value < 0)
  span.style.setProperty("--tint", `${(62 * Math.min(1, Math.abs(value ?? 0) / full)).toFixed(1)}%`)
}

// The theme's colors in a list of them, such as "--st-chart-categorical-colors".
function colorsOf(element, name) {
  return getComputedStyle(element).getPropertyValue(name).split(/,(?![^(]*\))/)
}

// The color at a share, 0 to 1, of a ramp of them.
function mixed(ramp, share) {
  const at = Math.min(1, share) * (ramp.length - 1), low = Math.floor(at), high = Math.ceil(at)
  return `color-mix(in srgb, ${ramp[high]} ${(100 * (at - low)).toFixed(0)}%, ${ramp[low]})`
}

// Such as "0.82 M".
function inTokens(tokens) {
  for (const [size, letter] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) if (tokens >= size) return `${+(tokens / size).toPrecision(3)}${letter}`
  return `${tokens}`
}

// Where in a sorted list the value nearest to another stands.
function nearest(sorted, value) {
  let best = 0
  for (let i = 1; i < sorted.length; i++) if (Math.abs(sorted[i] - value) < Math.abs(sorted[best] - value)) best = i
  return best
}
