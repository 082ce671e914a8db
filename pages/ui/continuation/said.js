// A prompt and its continuation by a model. Everything is set as textContent: a text is never interpreted as markup.
export default function ({ data, parentElement }) {
  const at = name => parentElement.querySelector("." + name)
  at("text").ariaLabel = `What the ${data.who.toLowerCase()} says`
  at("note").textContent = data.note
  const span = (text, name) => Object.assign(document.createElement("span"), { textContent: tame(text), className: name })
  const pieces = data.pieces.map((piece, i) => {
    const gap = /^ \S/.test(piece) ? 1 : 0 // the blank before a word is not underlined
    const one = span(piece.slice(gap), i === data.parts ? "piece parts" : "piece")
    one.title = `${visible(piece)} ${data.p[i]}`
    return [" ".repeat(gap), one]
  })
  at("text").replaceChildren(span(data.prompt, "quiet"), ...pieces.flat())
  const box = at("text"), first = pieces[0]?.[1]
  if (!first) return
  const start = first.offsetTop - 10 // where the continuation begins, unless its end would be out of sight
  box.scrollTop = Math.max(start - 28, box.scrollHeight - box.clientHeight > start ? box.scrollHeight : 0)
}
