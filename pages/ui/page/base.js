// What components share; each has its own script behind this. Text goes in as textContent: what it says is never markup.
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
  return element
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
