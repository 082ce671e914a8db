// A text set as text, token by token, and how two models write on. Everything from `data` is set as textContent: a text
// is never interpreted as markup.
const N_LOOKS = 3, MOST_BEFORE = 14, MOST_WORD = 30, SIDES = ["a", "b"]

export default function (mount) {
  const { data } = mount, view = viewOf(mount, begin)
  if (view.textKey !== data.text_key) setText(view)
  if (data.locked?.number >= view.reports) light(view, shownAt(view, data.locked.token)) // not of a lock before the last one
  drawLegend(view)
  view.painted = undefined
  view.spans.forEach((span, i) => tint(span, tinted(data, i), data.full, data.view === "change"))
  drawLandmarks(view)
  drawWritten(view)
  show(view)
}

function begin(part) {
  const view = { spans: [], over: null, at: 0, focused: false, locked: null, column: null, reports: 0 }
  for (const name of ["legend", "text", "readout", "landmarks", "said"]) view[name] = part(`.${name}`)
  const index = event => {
    const span = event.target.closest?.("span")
    return span && view.text.contains(span) ? view.spans.indexOf(span) : -1
  }
  view.text.onmousemove = event => { // not "over": a text that appears under a resting mouse keeps its token
    const i = index(event), over = i < 0 ? null : i
    if (over !== view.over) { view.over = over; show(view) }
  }
  view.text.onmouseleave = () => { view.over = null; show(view) }
  view.text.onclick = event => { const i = index(event); if (i >= 0) { move(view, i, true); lock(view, i) } }
  view.text.addEventListener("focusin", event => { const i = index(event); if (i >= 0) move(view, i, true); show(view) })
  view.text.addEventListener("focusout", () => { view.focused = false; show(view) })
  view.text.onkeydown = event => {
    const vertical = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    view.column = vertical ? view.column ?? view.spans[view.at]?.getClientRects()[0]?.left : null // over lines, that of the first
    const to = vertical ? nextLine(view.spans, view.at, vertical, view.column) : step(event, view.at, view.spans.length)
    if (event.key === "Enter" || event.key === " ") lock(view, view.at)
    else if (event.key === "Escape") lock(view, null)
    else if (view.data.looks && (event.key === "[" || event.key === "]")) view.tell("turn", { by: event.key === "]" ? 1 : -1, number: ++view.reports })
    else if (to !== undefined) { view.over = null; move(view, within(to, view.spans.length)) }
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  return view
}

function setText(view) {
  const { data, text } = view
  Object.assign(view, { textKey: data.text_key, over: null, at: 0, focused: false, locked: null })
  view.spans = data.pieces.map(piece => {
    const span = make("span", ""), ink = make("b", "", "token")
    const gap = /^ \S/.test(piece) ? 1 : 0 // the blank before a word stays white: it may end the previous line
    span.tabIndex = -1
    span.append(" ".repeat(gap), ink)
    appendLines(ink, piece.slice(gap))
    return span
  })
  text.replaceChildren(...view.spans)
  const turn = data.looks ? ", [ and ] change the head" : ""
  text.ariaLabel = `${data.name}: arrow keys move from token to token, Enter locks one, Escape lets go${turn}`
  text.classList.toggle("long", data.pieces.length > 500)
  text.scrollTop = 0
  if (view.spans.length) view.spans[0].tabIndex = 0
}

// The sides that have read anything: a model alone has no other.
const sides = data => SIDES.filter(side => data.loss[side])

function tinted(data, i) {
  if (data.view === "attention") return null // it is of the token pointed at
  const [a, b] = SIDES.map(side => data.loss[side]?.[i] ?? null)
  if (data.view === "loss") return a
  return a === null || b === null ? null : b - a
}

// Tints the tokens that the heads look at to predict a token, in the view of attention.
function paintLooks(view, i) {
  const { data, spans } = view
  if (data.view !== "attention" || view.painted === i) return
  view.painted = i
  spans.forEach(span => tint(span, null, 1, false))
  for (const [source, share] of data.looks?.at[i] ?? []) {
    const span = spans[source - data.start]
    if (span) tint(span, Math.sqrt(share), 1, false) // the root, so that a tenth is to be seen
  }
}

function drawLegend({ legend, data }) {
  const { words, full, view, note, looks } = data
  const scales = {
    change: [make("b", words.better), make("span", `−${full}`), make("div", "", "bar worse"), make("span", `+${full} nats`), make("b", words.worse)],
    loss: [make("span", "Loss: 0"), make("div", "", "bar loss"), make("span", `${full} nats`)],
    attention: looks ? [make("span", `Attention of ${looks.heads}: 0`), make("div", "", "bar loss"), make("span", "100%")] : [],
  }
  legend.replaceChildren(
    ...scales[view],
    make("span", note),
  )
}

function drawLandmarks(view) {
  const { data, landmarks } = view
  landmarks.replaceChildren(...data.landmarks.map(mark => {
    const button = make("button", "")
    button.append(make("b", mark.text), ` ${mark.about} `, make("span", mark.measured, "quiet"))
    button.onclick = () => {
      const i = mark.first - data.start
      if (i >= 0 && i < view.spans.length) { move(view, i); lock(view, i, true) }
    }
    return button
  }))
}

function move(view, i, quietly) {
  if (view.spans[view.at]) view.spans[view.at].tabIndex = -1
  view.at = i
  view.focused = true
  view.spans[i].tabIndex = 0
  if (!quietly || view.text.getRootNode().activeElement !== view.spans[i]) view.spans[i].focus()
  show(view)
}

function lock(view, i, stay) {
  light(view, i === view.locked && !stay ? null : i)
  const { data, locked } = view
  if (data.locked) view.tell("locked", { token: locked === null ? null : data.start + locked + 1, number: ++view.reports })
  show(view)
}

// Where in this part a token is, by its number in the text.
function shownAt(view, token) {
  const i = token - 1 - view.data.start
  return token !== null && view.spans[i] ? i : null
}

function light(view, i) {
  view.spans[view.locked]?.classList.remove("locked")
  view.locked = i
  view.spans[i]?.classList.add("locked")
}

function show(view) {
  const { data, spans, readout } = view, { words } = data
  const i = view.over ?? (view.focused ? view.at : view.locked) ?? data.first_shown
  spans.forEach((span, j) => span.classList.toggle("shown", j === i))
  paintLooks(view, i)
  if (i === null || !spans[i]) {
    readout.replaceChildren(make("p", "Point at a token, or reach it with the arrow keys.", "quiet"))
    view.said.textContent = ""
    return
  }
  const token = readable(data, i), number = data.start + i + 1
  const known = sides(data).filter(side => data.loss[side][i] !== null), losses = known.map(side => `${words[side]} ${nats(data.loss[side][i])}`)
  const inWord = wordAt(data, i), of = inWord ? `In “${inWord.word}”, token` : "Token", locked = i === view.locked ? ", locked" : ""
  const place = `${of} ${number.toLocaleString("en")} of ${data.n_total.toLocaleString("en")}${locked}`
  readout.replaceChildren(row(make("h4", token), make("span", place, "quiet")))
  if (known.length < sides(data).length) {
    readout.append(make("p", known.length ? `${losses[0]} nats. ${words.b} is not measured yet.` : "No loss: nothing stands before it that it could be predicted from."))
    view.said.textContent = `${token}, no loss`
  } else {
    readout.append(numbers(data, i, known, inWord), likely(data, i, known))
    const change = known.length > 1 ? `, ${words.change} ${nats(data.loss.b[i] - data.loss.a[i], true)}` : ""
    view.said.textContent = `${token}, ${losses.join(", ")}${change} nats`
  }
  if (data.looks) readout.append(...looked(data, i))
}

const readable = (data, i) => data.pieces[i] === "" ? "(more of the character before)" : visible(data.pieces[i])

// The word that a token is a part of, without the punctuation around it, and its tokens; null if it is all of it.
function wordAt({ pieces }, i) {
  const begins = j => j === 0 || j === pieces.length || /^\s/.test(pieces[j]), isMark = j => !/[\p{L}\p{N}]/u.test(pieces[j])
  let from = i, to = i + 1
  while (!begins(from)) from--
  while (!begins(to)) to++
  while (from < i && isMark(from)) from++
  while (to > i + 1 && isMark(to - 1)) to--
  const word = tame(pieces.slice(from, to).join("").trim())
  return to - from > 1 && word.length <= MOST_WORD ? { word, from, to } : null
}

function numbers(data, i, known, inWord) {
  const table = document.createElement("table"), lossOf = (from, to) => known.map(side => data.loss[side].slice(from, to).reduce((sum, loss) => sum + loss, 0))
  const filled = (words, [a, b], each, ofBoth) => [words, each(a), ...(b === undefined ? [] : [each(b), ofBoth(b - a)])]
  const one = lossOf(i, i + 1), p = loss => percent(Math.exp(-loss))
  const rows = [filled("Probability", known, side => data.words[side], () => data.words.change),
                filled("of the token", one, p, times),
                ...(inWord ? [filled("of the word", lossOf(inWord.from, inWord.to), p, times)] : []),
                filled("Loss, nats", one, nats, change => nats(change, true))]
  rows.forEach((cells, r) => {
    const row = (r ? table.tBodies[0] ?? table.createTBody() : table.createTHead()).insertRow()
    cells.forEach((cell, c) => row.append(make(r && c ? "td" : "th", cell)))
  })
  return table
}

function likely(data, i, known) {
  const grid = make("div", "", known.length > 1 ? "two" : "one"), columns = [] // both headings are in the first row, so that the tokens line up
  for (const side of known) {
    const column = make("div", "")
    grid.insertBefore(make("div", `Likeliest, ${data.words[side]}`, "quiet"), columns[0] ?? null)
    columns.push(column)
    data.likely[side][i].forEach((token, k) => {
      const p = data.p[side][i][k], piece = make("span", visible(data.strings[token] ?? ""), "piece")
      const line = row(piece, make("span", percent(p)))
      line.classList.toggle("right", token === data.ids[i])
      column.append(line)
    })
    grid.append(column)
  }
  return grid
}

// Where the heads look to predict a token: from the token before it; and what that adds to its logit.
function looked(data, i) {
  const { at, heads, first } = data.looks, from = i > 0 ? `“${visible(data.pieces[i - 1])}”` : first ? "the beginning" : "the token before"
  if (!at[i]) return [make("p", `Where ${heads} looks is known for the first ${at.length + data.start} tokens.`, "quiet")]
  if (!at[i].length) return []
  const box = make("div", "", "looks")
  box.append(make("div", `To predict it, ${heads} looks from ${from} at`, "quiet"))
  box.append(row(make("span", "earlier token"), make("span", "attention"), make("span", "adds to its logit")))
  for (const [source, share, raises, piece] of at[i].slice(0, N_LOOKS)) {
    const name = make("span", "")
    name.append(make("span", wordsBefore(data, source - data.start), "quiet"), make("span", source < 0 ? "⟨beginning⟩" : visible(piece), "piece"))
    const line = row(name, make("span", percent(share)), make("span", `${nats(raises, true)} nats`))
    line.classList.toggle("right", piece === data.pieces[i])
    box.append(line)
  }
  return [box]
}

// Of the change of a loss, how many times less or more likely the token is.
function times(change) {
  const factor = Math.exp(Math.abs(change)), round = { maximumSignificantDigits: 3 }
  const n = factor < 10 ? factor.toFixed(1) : factor < 1e6 ? factor.toLocaleString("en", round) : "> 10⁶"
  return n === "1.0" ? "alike" : `${n} times ${change > 0 ? "less" : "more"}`
}

// The last two words before a token, or one if they are long.
function wordsBefore({ pieces }, i) {
  const [two, last] = pieces.slice(Math.max(0, i - MOST_BEFORE), Math.max(0, i)).join("").match(/\S*\s*(\S*)$/)
  return tame((two.length > MOST_BEFORE ? last : two).replaceAll(/\s+/g, " ").slice(-MOST_BEFORE))
}

const percent = p => p < 1e-6 ? "< 0.0001%" : `${p < 0.001 ? Number((100 * p).toPrecision(1)) : (100 * p).toFixed(1)}%`

// How the models write on: the token at which they part is marked.
function drawWritten({ data, part }) {
  const box = part(".written")
  box.classList.toggle("before", !data.written)
  if (!data.written) return
  const { after, sides } = data.written, ids = sides.map(side => side.ids)
  const parts = ids.length > 1 ? ids[0].findIndex((id, k) => id !== ids[1][k]) : -1
  const heading = make("h4", "Continuation")
  heading.append(make("span", ` after “… ${after}”`, "quiet"))
  box.replaceChildren(heading, ...sides.map(({ who, pieces, p, note }) => {
    const line = make("p", "")
    line.append(make("span", who, "quiet"), ...pieces.flatMap((piece, k) => {
      const gap = /^ \S/.test(piece) ? 1 : 0, one = make("b", "", k === parts ? "differs" : "")
      appendLines(one, piece.slice(gap))
      one.title = `${visible(piece)} ${percent(p[k])}`
      return [k ? " ".repeat(gap) : "", one]
    }), make("span", note ? ` ${note}` : " …", "quiet"))
    return line
  }))
}
