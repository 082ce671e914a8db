// Fixes of elements that Streamlit draws itself, as of the release that streamlit_internals.py names. It
// begins the script of the component on every page (present.py), which calls `mendPage` in every run and for every theme.
const HELP = `[data-testid="stTooltipIcon"] button:is([aria-label="Help"], [aria-label^="Help for "])`
const WIDGET = `[data-testid="stElementContainer"]`
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
  for (const type of ["keydown", "pointerdown"]) window.addEventListener(type, closeSettings, true)
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

// Settings (streamlit_internals.css) close at Escape and at a click elsewhere on the page, as a popover does.
function closeSettings({ key, target }) {
  const open = document.querySelector('[class*="st-key-settings_menu"] details[open]')
  if (open && (key ? key === "Escape" : target.closest(APP) && !open.contains(target))) open.querySelector("summary").click()
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
