// Text of the readout and the legend for a token, and formats of numbers and pieces. One module with view.js.

const strength = share => (share < 0.002 ? "0%" : (58 * Math.sqrt(share)).toFixed(0) + "%")
const LEAST_NATS = 0.05, FULL_NATS = 1 // one scale for all heads, so that trifles are not underlined
const thickness = value => (value < LEAST_NATS ? "0px" : (1 + 5.5 * Math.sqrt(Math.min(1, value / FULL_NATS))).toFixed(1) + "px")

function drawLegend(view) {
  const swatch = (name, value, text) => {
    const token = make("span", text, "token")
    token.style.setProperty(name, value)
    return token
  }
  const { mode, at, seen } = view, t = asked(view), here = quoted(seen.pieces[at])
  const raised = mode === "source" ? `nats by ${here}` : t === null ? "nats" : `nats added to ${quoted(seen.pieces[t])}`
  view.looked.replaceChildren(make("b", `attention ${mode === "source" ? "to" : "from"} ${here}`), ...[0.05, 0.25, 1].map(share => swatch("--tint", strength(share), String(share))))
  view.raised.replaceChildren(make("b", raised), ...[LEAST_NATS, 0.25, FULL_NATS].map(value => swatch("--raises", thickness(value), `+${value}`)))
}

function showReadout(view, looks, raises, waiting) {
  const { seen, at, readout, pattern } = view, { pieces } = seen
  const destination = view.mode === "destination", t = asked(view)
  const next = destination && view.about === "next"
  const top = make("div", "", "top")
  const heads = pattern.heads.length > 1 ? `${pattern.heads.join(", ")}: mean attention, sum of nats` : pattern.heads.join() // while the next is read, those of the numbers
  top.append(make("b", quoted(pieces[at]), "word"), place(view, at), make("b", heads), make("span", view.locked === null ? "click or Enter holds it" : "held: Escape lets go", "quiet how"))
  if (waiting) top.append(make("span", `reading ${view.heads.join(", ")} …`, "quiet"))
  if (pattern.k) top.append(make("span", `the ${pattern.k} largest of each row are shown`, "quiet"))
  const targets = list(view, looks, destination ? `${quoted(pieces[at])} looks at` : "Looked at from", "looks", share => share.toFixed(3), 1)
  const title = next ? `Raised ${t === null ? "the next token: none" : `${quoted(pieces[t])}, the next`}` : destination ? `Raised ${quoted(pieces[at])} itself` : "It raised the logit of"
  const raisers = list(view, raises, title, "raises", value => nats(value, true), raises.reduce((a, b) => Math.max(a, b), FULL_NATS))
  const sum = raises.reduce((a, b) => a + b, 0)
  const lowest = sorted(raises.map(value => -value)).slice(0, 2).map(i => `${quoted(pieces[i])} ${nats(raises[i], true)}`)
  const lowered = lowest.length ? `; lowered most ${destination ? "by" : "that of"} ${lowest.join(", ")}` : ""
  raisers.append(make("p", `in all ${nats(sum, true)} nats${lowered}`, "quiet"))
  readout.replaceChildren(top, targets, raisers, parts(view, t))
}

// Indices of the values above 0, the largest first.
const sorted = values => [...values.keys()].filter(i => values[i] >= 0.005).sort((a, b) => values[b] - values[a])

function list(view, values, title, colour, text, full) {
  const box = make("section", "", colour)
  box.append(make("h4", title))
  for (const i of sorted(values).slice(0, N_LISTED)) {
    const piece = make("span", readable(view.seen.pieces[i]), "piece")
    box.append(row(values[i] / full, piece, place(view, i), make("b", text(values[i]))))
  }
  if (box.childElementCount === 1) box.append(make("p", "no token clearly", "quiet"))
  return box
}

function parts(view, t) {
  const { seen } = view, n = seen.pieces.length, box = make("section", "", "parts")
  if (t === null || t < 1) {
    box.append(make("h4", "Where its logit comes from"), make("p", "Nothing stands before it that it could be predicted from.", "quiet"))
    return box
  }
  const heads = view.cells.map((_, c) => raised(view, c, t))
  const ffns = Array.from({ length: seen.layers }, (_, l) => seen.ffns[l * n + t]).reduce((a, b) => a + b, 0)
  const logit = seen.logit[t]
  const sums = [["all heads", heads.reduce((a, b) => a + b, 0)], ["FFNs", ffns], ["direct path", seen.direct[t]], ["biases, rest", seen.rest[t]]]
  const best = [...heads.keys()].sort((a, b) => heads[b] - heads[a]).slice(0, N_LISTED)
  const full = Math.max(...sums.map(([, value]) => Math.abs(value)), 1e-6)
  box.append(make("h4", `Logit of ${quoted(seen.pieces[t])}: ${nats(logit, true)}`))
  const columns = make("div", "", "two")
  const left = make("div", ""), right = make("div", "")
  const part = (name, value) => row(value / full, make("span", name), make("b", nats(value, true)))
  for (const [name, value] of sums) left.append(part(name, value))
  left.append(make("p", "above the mean of all tokens, nats", "quiet"))
  for (const c of best) right.append(part(view.cells[c].dataset.head, heads[c]))
  columns.append(left, right)
  box.append(columns)
  return box
}

const place = ({ seen }, i) => make("span", i < seen.first ? "begin" : `${i + 1 - seen.first}`, "quiet")
const quoted = piece => `“${readable(piece)}”`

// Joiners and marks of direction too are signs here.
const EVERY_SIGN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g
const readable = text => (text === "" ? "⋯" : visible(text, EVERY_SIGN))
