// Light or dark, and the presenter's bar: it steps through saved views and hears arrow keys and a clicker.
const AT = "headroom view", UNNAMED = "1", LOOK = "headroom look", DARK = "prefers-color-scheme: dark"
const SPOKEN_FOR = "input, textarea, select, [contenteditable=true], [role=slider], [role=listbox], [role=combobox], " +
  "[role=radio], [role=tab], [role=grid], [role=group], [role=dialog]"
const LOOKS = ["font", "text-color", "background-color", "border-color", "primary-color", "base-radius"].map(name => `--st-${name}`)

export default function ({ data, parentElement }) {
  const home = parentElement.querySelector(".home"), page = window
  const root = home.stage ??= home.querySelector(".stage")
  mendPage() // of streamlit_internals.js
  fitSlide(data.presenting)
  page.headroomHere = data.here // the page that the server is drawing
  const named = () => new URLSearchParams(page.location.search).get("present") // which is known before the server draws it
  const at = () => { // the view that the address names; the one stepped to, if several have its name
    const name = named(), last = Number(page.sessionStorage.getItem(AT))
    return data.views[last]?.name === name ? last : data.views.findIndex(view => view.name === name)
  }
  page.headroomShow = () => {
    const presenting = named() !== null
    root.classList.toggle("bar", presenting)
    placeBar(home, root, presenting)
    for (const part of [parts.start, parts.copy]) part.hidden = presenting || data.presenting
    for (const part of [parts.back, parts.next, parts.place]) part.hidden = !presenting || !data.views.length
    parts.look.hidden = !presenting && data.presenting
    parts.leave.hidden = !presenting
    parts.more.hidden = !presenting || data.views.length > 0
    parts.place.textContent = `${at() < 0 ? "–" : at() + 1} / ${data.views.length}`
    parts.back.disabled = at() === 0
    parts.next.disabled = at() === data.views.length - 1
    parts.look.textContent = isDark() ? "Light" : "Dark"
  }
  const go = to => {
    if (!data.views.length) return
    const found = Math.max(0, Math.min(data.views.length - 1, to))
    page.sessionStorage.setItem(AT, found)
    visit(present(data.views[found]))
  }
  const step = by => go(at() + by)
  const bare = () => page.location.pathname + without(page.location.search)
  const leave = () => visit(bare())
  const parts = Object.fromEntries([...root.children].map(each => [each.className, each]))
  page.headroomThis = () => visit(present({ link: bare(), name: UNNAMED }))
  parts.start.onclick = () => data.views.length ? go(0) : page.headroomThis()
  parts.copy.onclick = () => copy(parts.copied, page.location.origin + bare())
  parts.back.onclick = () => step(-1)
  parts.next.onclick = () => step(1)
  parts.leave.onclick = leave
  parts.look.onclick = () => { setLook(isDark() ? "light" : "dark"); page.headroomShow() }
  page.headroomKey = event => {
    if (named() === null || event.altKey || event.ctrlKey || event.metaKey) return
    const clicked = { PageDown: 1, PageUp: -1 }[event.key], typed = event.composedPath()[0]
    const number = /^[1-9]$/.test(event.key) && event.key <= data.views.length && Number(event.key)
    const by = clicked ?? { ArrowRight: 1, ArrowLeft: -1 }[event.key]
    if (!clicked && typed.closest?.(SPOKEN_FOR)) return // the arrow is meant for the focused element
    if (event.key === "Escape") leave()
    else if (by) step(by)
    else if (number) go(number - 1)
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  if (!page.headroomListens) {
    page.headroomListens = true
    page.addEventListener("keydown", event => page.headroomKey(event), true)
    page.addEventListener("click", openView, true)
    page.addEventListener("popstate", () => page.headroomShow())
  }
  const wanted = page.localStorage.getItem(LOOK)
  if (wanted && (wanted === "dark") !== isDark()) setLook(wanted)
  page.headroomShow()
}

// Streamlit removes its elements while it opens another screen. The presenter's bar is next to them, so it stays.
function placeBar(home, root, presenting) {
  const bar = window.headroomBar ??= document.createElement("div")
  const within = bar.shadowRoot ?? bar.attachShadow({ mode: "open" }), ours = home.getRootNode(), page = document.querySelector(APP)
  if (bar.parentElement !== page) page.append(bar)
  if (!presenting) {
    within.replaceChildren()
    if (!home.contains(root)) home.append(root)
  } else if (home.isConnected) {
    for (const name of LOOKS) bar.style.setProperty(name, getComputedStyle(home).getPropertyValue(name))
    if (within.contains(root)) return
    within.adoptedStyleSheets = ours.adoptedStyleSheets
    within.replaceChildren(...[...ours.querySelectorAll("style")].map(each => each.cloneNode(true)), root)
  }
}

// As the browser's own back and forward: Streamlit then takes every control from the address, without a reload. What was
// clicked last would have a frame after a key.
function visit(link) {
  let focused = document.activeElement
  while (focused?.shadowRoot?.activeElement) focused = focused.shadowRoot.activeElement
  focused?.blur()
  history.pushState({}, "", link)
  window.dispatchEvent(new PopStateEvent("popstate", { state: {} }))
}

// A saved view opens in this tab, where Streamlit's links open another; and this screen is presented without being saved.
function openView(event) {
  const link = event.target.closest?.(".st-key-views_list a"), here = event.target.closest?.(".st-key-present_this button")
  if (!here && (!link || event.ctrlKey || event.metaKey)) return
  event.preventDefault()
  event.stopPropagation()
  here ? window.headroomThis() : visit(link.getAttribute("href"))
}

// The clipboard is closed to pages without HTTPS, except those of this computer.
async function copy(line, link) {
  try {
    await navigator.clipboard.writeText(link)
  } catch {
    return prompt("This screen's link:", link)
  }
  const isLocal = /^(localhost|127\.)/.test(location.hostname)
  line.textContent = isLocal ? `Copied: opens where Headroom runs on port ${location.port}` : "Copied"
  clearTimeout(line.ends)
  line.ends = setTimeout(() => { line.textContent = "" }, 4000)
}

// A slide's title is the name of its view, which its address holds.
function present(view) {
  return `${view.link}${view.link.includes("?") ? "&" : "?"}present=${encodeURIComponent(view.name)}`
}

function without(search) {
  const words = new URLSearchParams(search)
  words.delete("present")
  return words.size ? `?${words}` : ""
}

function isDark() {
  return window.matchMedia(`(${DARK})`).matches
}

// Streamlit follows the system's color scheme, and checks it again after printing: this overrides it and triggers a check.
function setLook(look) {
  const real = (window.headroomMatchMedia ??= window.matchMedia.bind(window))
  window.matchMedia = query => {
    const asked = real(query)
    if (!query.includes("prefers-color-scheme")) return asked
    const listen = name => (...rest) => asked[name](...rest)
    return { matches: query.includes(look), media: query, onchange: null, addEventListener: listen("addEventListener"),
             removeEventListener: listen("removeEventListener"), addListener: listen("addListener"),
             removeListener: listen("removeListener"), dispatchEvent: listen("dispatchEvent") }
  }
  window.localStorage.setItem(LOOK, look)
  window.dispatchEvent(new Event("afterprint"))
}
