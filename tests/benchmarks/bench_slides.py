"""Ten saved views stepped through in Chromium at 1920x1080: from a key of the presenter to the last change on screen.

    .venv/bin/python -m tests.benchmarks.bench_slides [--rounds 3] [--shots FOLDER]

All ten are in the store. Each is waited for until nothing on the page has changed for QUIET_MS; what is counted ends
with the last change. It also tells the smallest type on each slide, and every error that the console heard.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any

from cache import Store
from pages.ui.page import saved_views as views
from pages.ui.page.saved_views import SavedView
from tests.benchmarks.browser import served, tab
from tests.benchmarks.measure import REPOSITORY, options

QUIET_MS, BAR_S = 700, 0.7
FERRY = "text_text=The+ferry&order=random"
VIEWS = (
    SavedView("The full model", "/"),
    SavedView("A third of the heads", "/?heads=30"),
    SavedView("Two thirds", "/?heads=65"),
    SavedView("Without four heads", "/?mask=L1H1-3+L3H5"),
    SavedView("A task that needs no examples", "/?task=demo_question&mask=L1H1-3+L3H5"),
    SavedView("Which heads match prefixes", "/heads?colors=Induction"),
    SavedView("A text, read twice", "/text?text_text=Privet+Drive%2C+twice&mask=L1H1-3"),
    SavedView("Where a head looks", "/text?text_shade=Attention&text_head=L1H2"),
    SavedView("Another one", "/text?text_shade=Attention&text_head=L1H3"),
    SavedView("Later tokens are easier", "/text?text_text=Five+log+books&order=random&heads=20"),
)
# Notes when the page last changed: what stands there, and what charts and pictures show.
WATCH = """() => {
  window.lastChange = performance.now()
  const counts = each => each.type !== "attributes" || ["d", "src"].includes(each.attributeName)
  new MutationObserver(all => { if (all.some(counts)) window.lastChange = performance.now() }).observe(
    document.querySelector("[data-testid=stMain]"),
    {subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ["d", "src"]})
}"""
SETTLED = """([since, quiet, link]) => {
  const plain = each => {
    const url = new URL(each, location)
    url.searchParams.sort()
    return url.pathname + url.search
  }
  return plain(window.headroomHere) === plain(link)
  && document.querySelector("[data-testid=stApp]").dataset.testScriptState === "notRunning"
  && !document.querySelector("[data-testid=stProgress]")
  && performance.now() - Math.max(since, window.lastChange) > quiet
}"""
# The smallest type that is seen, in pixels, and what stands in it.
SMALLEST = """() => {
  const walker = document.createTreeWalker(document.querySelector("[data-testid=stMain]"), NodeFilter.SHOW_TEXT)
  let best = [999, ""]
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), at = walker.currentNode.parentElement
    const seen = {opacityProperty: true, visibilityProperty: true}
    if (!text || at.closest("style, script") || !at.checkVisibility(seen)) continue
    const box = at.getBoundingClientRect(), style = getComputedStyle(at)
    if (box.width < 3 || box.height < 3 || style.clipPath.includes("50%")) continue
    const size = parseFloat(style.fontSize) * (at.ownerSVGElement?.getScreenCTM?.()?.a ?? 1)
    if (size < best[0]) best = [size, text.slice(0, 40)]
  }
  return best
}"""


def main() -> None:
    given = options(__doc__, rounds=3, shots=None)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"{folder}/results")
        views.save(VIEWS, store)
        store.close()
        environment = {"HEADROOM_CACHE": f"{folder}/results", "HEADROOM_IDLE_SECONDS": "0"}
        with served(REPOSITORY / "app.py", REPOSITORY, **environment) as address, tab(1920, 1080) as page:
            heard: list[str] = []
            page.on("console", lambda message: heard.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: heard.append(str(error)))
            page.goto(f"{address}/?present=1")
            page.locator(".stage.bar").wait_for()
            page.evaluate(WATCH)
            taken = [step(page) for _ in VIEWS]  # what is not in the store is measured now
            print(f"first time through, measured: {sum(taken):.1f} s", flush=True)
            times = rounds(page, given.rounds)
            for view, each in zip((*VIEWS[1:], VIEWS[-2]), zip(*times, strict=True), strict=True):
                print(f"  {view.name:<32} {' '.join(f'{seconds:.2f}' for seconds in each)} s")
            every = sorted(seconds for each in times for seconds in each)
            p95 = every[max(0, round(0.95 * len(every)) - 1)]
            print(f"p50 {statistics.median(every):.2f} s, p95 {p95:.2f} s (bar {BAR_S} s), {len(every)} steps")
            look(page, given.shots and Path(given.shots))
            print("console:", heard or "no error")


def rounds(page: Any, n: int) -> list[list[float]]:
    """Seconds of each step, by round; each begins at the last view and goes back to it."""
    found = []
    for _ in range(n):
        for _ in VIEWS:
            page.keyboard.press("PageUp")
            page.wait_for_timeout(100)
        step(page, "PageUp")
        found.append([step(page, "PageDown") for _ in VIEWS[1:]])
        found[-1].append(step(page, "ArrowLeft"))
        step(page, "ArrowRight")
    return found


def step(page: Any, key: str = "PageDown") -> float:
    """Seconds from a key to the last change on screen."""
    since = page.evaluate("() => performance.now()")
    page.keyboard.press(key)
    page.wait_for_timeout(50)
    at = int(page.evaluate("() => sessionStorage.getItem('headroom view') ?? -1"))
    page.wait_for_function(SETTLED, arg=[since, QUIET_MS, VIEWS[at].link])
    return max(0.0, page.evaluate("since => window.lastChange - since", since)) / 1000


def look(page: Any, folder: Path | None) -> None:
    """Prints the smallest type of each slide; pictures of them in both looks, where a folder is given."""
    for look in ("light", "dark"):
        for _ in VIEWS:
            step(page, "PageUp")
        for number, view in enumerate(VIEWS, 1):
            if look == "light":
                size, words = page.evaluate(SMALLEST)
                print(f"  {view.name:<32} smallest type {size:.1f} px: {words}")
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                page.screenshot(path=folder / f"{number:02}-{look}.png")
            step(page)
        if look == "light":
            page.get_by_role("button", name="Light or dark").click()


if __name__ == "__main__":
    main()
