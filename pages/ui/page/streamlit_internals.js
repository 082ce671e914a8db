// Fixes of elements that Streamlit draws itself, as of the release that streamlit_internals.py names. It
// begins the script of the stage component, which is on every page and calls `mendPage` in every run and for every theme.
const HELP = `[data-testid="stTooltipIcon"] button:is([aria-label="Help"], [aria-label^="Help for "])`
const WIDGET = `[data-testid="stElementContainer"]`
const EXPAND = `[data-testid="stExpandSidebarButton"]` // is there while the sidebar is collapsed
const SLIDE = `[data-testid="stMainBlockContainer"]`, GROWS = 1.03
const FIGURE = `[data-testid="stVegaLiteChart"], [data-testid="stMetric"], .element-container:not(.st-key-stage) [data-testid^="stBidiComponent"]`
const CHART = `[data-testid="stVegaLiteChart"] svg.marks`
const APP = `[data-testid="stApp"]`, NAVIGATION = `[data-testid="stSidebarNavItems"]`, SECTION = `[data-testid="stNavSectionHeader"]`

// Streamlit draws elements at any time: each is mended as it appears, once.
function mendPage() {
  // Popups over the page are outside of the app's element, and would keep the light theme's colors.
  document.documentElement.style.colorScheme = getComputedStyle(document.querySelector(APP)).colorScheme
  keepColorBars()
  if (window.headroomMends) return
  const mend = () => { skipHelp(); nameSections(); keepColorBars() }
  window.headroomMends = new MutationObserver(mend)
  window.headroomMends.observe(document.body, { childList: true, subtree: true })
  window.addEventListener("keydown", showHelp, true)
  window.addEventListener("pointerdown", closeSettings, true)
  window.headroomShowSidebar = () => document.querySelector(EXPAND)?.click()
  mend()
}

// Streamlit makes each question mark a Tab stop: 15 of the 44 before the first slider on Prune.
function skipHelp() {
  for (const icon of document.querySelectorAll(`${HELP}:not([tabindex="-1"])`)) icon.tabIndex = -1
}

// Tab skips the help, so F1 shows that of the control with the focus.
function showHelp(event) {
  if (event.key !== "F1") return
  const control = event.composedPath()[0], root = control.getRootNode()
  const icon = control.closest(WIDGET)?.querySelector(HELP) ?? (root instanceof ShadowRoot && root.querySelector(".help"))
  if (!icon) return
  icon.focus() // which shows it
  event.preventDefault()
}

// Settings (streamlit_internals.css) close at a click elsewhere on the page, as a popover does.
function closeSettings({ target }) {
  const open = document.querySelector('[class*="st-key-settings_menu"] details[open]')
  if (open && target.closest(APP) && !open.contains(target)) open.querySelector("summary").click()
}

// The sections of the navigation are in a list, which may hold list items only: they become groups of links with a name.
function nameSections() {
  for (const each of document.querySelectorAll(`:is(${NAVIGATION}, ${NAVIGATION} li):not([role])`)) each.role = "none"
  for (const section of document.querySelectorAll(`${NAVIGATION} > div:not([role])`)) {
    section.role = "group"
    section.ariaLabel = section.querySelector(`${SECTION} p`)?.textContent ?? ""
  }
}

// Vega refers to the gradient of a color bar by the address of the page, which every control changes.
function keepColorBars() {
  for (const bar of document.querySelectorAll(`${CHART} [fill^="url("]:not([fill^="url(#"])`))
    bar.setAttribute("fill", bar.getAttribute("fill").replace(/^url\(.*#/, "url(#"))
}

// Scales a slide to the height of its window, as its content comes: --fit is the zoom in streamlit_internals.css. It grows
// only by a few percent or more, as a larger slide may need another line. What follows the first figure is left out if it does
// not fit at the least zoom.
function fitSlide(presenting) {
  const slide = document.querySelector(SLIDE), style = document.documentElement.style
  let grown = 0, width = 0
  window.headroomFit?.disconnect()
  clearTimeout(window.headroomFits)
  if (!presenting) return style.removeProperty("--fit")
  const fit = () => {
    const least = innerWidth / 1480, most = innerWidth / 1150 // type of 18 to 23 pixels in a window of 1280
    const room = slide.parentElement.clientHeight, blocks = [...slide.firstElementChild.children].filter(inOrder)
    for (const block of blocks) delete block.dataset.beyond
    const first = blocks.findIndex(hasFigure), fitsNot = () => slide.offsetHeight * least > room
    const isTitle = at => at < blocks.length - 1 && !hasFigure(blocks[at]) // of a figure that is left out
    for (let last = blocks.length - 1; last > first && (fitsNot() || isTitle(last)); last--) blocks[last].dataset.beyond = ""
    const now = Number(style.getPropertyValue("--fit")) || 1
    if (width !== innerWidth) [grown, width] = [0, innerWidth]
    const fits = Math.max(0.7 * least, Math.min(most, room / slide.offsetHeight)) // one figure that is too tall
    if (fits < now) grown = Date.now() < grown + 1000 ? Infinity : grown // two layouts in turn: the small one stays
    else if (fits > GROWS * now && grown < Infinity) grown = Date.now()
    else return
    style.setProperty("--fit", fits)
  }
  const hasFigure = block => [...block.querySelectorAll(FIGURE)].some(figure => figure.offsetHeight)
  const inOrder = block => getComputedStyle(block).order === "0" // not the title and the subject, which come first
  window.headroomFit = new ResizeObserver(() => { clearTimeout(window.headroomFits); window.headroomFits = setTimeout(fit, 100) })
  for (const each of [slide, slide.parentElement]) window.headroomFit.observe(each)
}
