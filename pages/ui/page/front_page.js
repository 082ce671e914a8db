// Runs before Streamlit: sets its server's address, makes one history entry for each action of the user, and reloads a
// page that went blank.

// Streamlit would look for its server below the screen's own path first: a 404 for each direct link.
window.__streamlit = { BACKEND_BASE_URL: new URL(".", location.href).href };

(() => {
  // Streamlit replaces the entry where a control of the page is changed, and adds one for whatever the server writes
  // into the address, however many times for one click. Here the first address of an action adds an entry; later ones
  // replace it, as what the server adds to it is part of the same view. A slider that rests and then moves on in the
  // same hand ("input") makes another.
  const push = history.pushState.bind(history), replace = history.replaceState.bind(history)
  let action = "none" // "new": no address has followed yet; "control": a control's; "page": all that an action does
  let back = false    // after the browser's back and forward, until the next action

  for (const kind of ["pointerdown", "keydown", "input"])
    window.addEventListener(kind, event => {
      if (!event.isTrusted || event.repeat || event.ctrlKey || event.altKey || event.metaKey) return
      action = "new"
      back = false
    }, true)
  window.addEventListener("popstate", () => { action = "none"; back = true }, true)

  const write = byControl => (state, title, address) => {
    const to = new URL(address ?? location.href, location.href)
    if (to.href === location.href) return replace(state, title, address)
    const path = to.pathname !== location.pathname
    if (back && path) return // of the page that was left
    const adds = !back && (action === "new" || (action === "control" && path))
    if (adds) action = byControl ? "control" : "page"
    return (adds ? push : replace)(state, title, address)
  }
  history.pushState = write(false)
  history.replaceState = write(true)
})()

// An error in Streamlit's front end removes the whole page. The address holds its controls: reload, but never in a loop.
document.addEventListener("DOMContentLoaded", () => {
  const RELOADED = "headroom reloaded", SOUND_MS = 60_000, root = document.getElementById("root")
  new MutationObserver(() => {
    if (root.childElementCount) return
    if (Date.now() > Number(sessionStorage.getItem(RELOADED)) + SOUND_MS) {
      sessionStorage.setItem(RELOADED, Date.now())
      location.reload()
    } else {
      const line = document.createElement("p")
      line.textContent = "The page failed twice within a minute. Reload it to continue."
      root.append(line)
    }
  }).observe(root, { childList: true })
})
