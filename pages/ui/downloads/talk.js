// Steps through slides by arrow keys, a clicker, and the digits. Presented over the app, it has the app's buttons too.
const slides = [...document.querySelectorAll(".slide")], part = id => document.getElementById(id), drawn = new Map()
const app = inApp()
let at = 0

function inApp() {
  try {
    return window !== parent ? parent.headroomTalk : undefined
  } catch {
    return undefined // in the frame of a page from elsewhere
  }
}

async function draw(box) {
  const { view } = await vegaEmbed(box, specs[box.dataset.number], { actions: false, renderer: "svg" })
  const svg = box.querySelector("svg.marks"), shape = svg.getAttribute("height") / svg.getAttribute("width")
  box.classList.toggle("tall", shape > 2 * box.clientHeight / box.clientWidth) // such as a text: it scrolls
  svg.setAttribute("preserveAspectRatio", "xMinYMin meet")
  return view
}

function drawSlide(slide) {
  for (const box of slide?.querySelectorAll(".chart") ?? []) if (!drawn.has(box)) drawn.set(box, draw(box))
}

function show(to) {
  if (!slides.length) return app?.end()
  at = Math.max(0, Math.min(slides.length - 1, to))
  for (const slide of document.querySelectorAll(".slide")) slide.classList.toggle("shown", slide === slides[at])
  part("place").textContent = `${at + 1} / ${slides.length}`
  part("back").disabled = at === 0
  part("next").disabled = at === slides.length - 1
  drawSlide(slides[at])
  drawSlide(slides[at + 1]) // ahead: it is there at the key
}

const link = () => slides[at].dataset.link
part("back").onclick = () => show(at - 1)
part("next").onclick = () => show(at + 1)
for (const id of app ? ["open", "remove", "end"] : []) part(id).hidden = false
part("end").onclick = () => app.end()
part("open").onclick = () => app.open(link())
part("remove").onclick = () => {
  app.remove({ number: at, link: link() })
  slides.splice(at, 1)[0].remove()
  show(at)
}
addEventListener("keydown", event => {
  if (event.altKey || event.ctrlKey || event.metaKey) return
  const by = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 }[event.key]
  const to = by ? at + by : { Home: 0, End: slides.length - 1 }[event.key] ?? (/^[1-9]$/.test(event.key) ? event.key - 1 : null)
  if (event.key === "Escape") app?.end()
  else if (to !== null) show(to)
  else return
  event.preventDefault()
})
show(0)
