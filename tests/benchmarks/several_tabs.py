"""Several tabs of one app: how long each waits for the others, and whether alternating tabs load their models again.

    python -m tests.benchmarks.several_tabs [--rounds 1] [--drags 10] [--questions 100]

First three tabs, each in a context of its own, with the embedded model, a smeared run and a tiny OPT: the time from
opening to the first interval, alone on a fresh server and opened at once on another. The one that is served as the
n-th has n - 1 tabs ahead; it should take at most n times its time alone. Six tabs at once follow. Then two tabs, the
embedded model and HEADROOM_BENCH_LLAMA (or the smeared run), are dragged in turn: no model should be loaded after the
first two drags, and memory should stay flat.
"""

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.benchmarks.browser import WAIT_MS
from tests.benchmarks.measure import options
from tests.browser.conftest import CHROMIUM, FLAGS, await_command, await_mark
from tests.browser.test_drag import grab
from tests.browser.weighed import Server
from tests.conftest import make_tiny_opt

LEVELS = (65, 35, 85, 25, 45, 55, 15, 75, 5, 95)
# The time since the page was opened at which the figure first had an interval.
FIRST = """() => {
  window.first = null
  new MutationObserver(() => {
    if (+(document.querySelector("[data-mark=figure]")?.dataset.questions ?? 0) > 0) window.first ??= performance.now()
  }).observe(document, { childList: true, subtree: true, attributes: true })
}"""


def main() -> None:
    given = options(__doc__, rounds=1, drags=10, questions=100)
    if CHROMIUM is None:
        raise SystemExit("no Chromium on this computer: nothing is measured on screen")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        (tiny := Path(folder) / "tiny").mkdir()
        make_tiny_opt(tiny, n_ctx=512)
        models = ["demo", "runs/smeared", str(tiny)]
        for number in range(given.rounds):
            wait_in_turn(browser, Path(folder) / f"round {number}", models, given.questions)
        other = os.environ.get("HEADROOM_BENCH_LLAMA") or models[1]
        alternate(browser, Path(folder) / "drags", ["demo", other], given.drags, given.questions)
        browser.close()


def view(model: str, n_questions: int, shots: int = 5) -> str:
    return f"?model={model}&precision=fp32&order=random&limit={n_questions}&shots={shots}"


def wait_in_turn(browser: Browser, folder: Path, models: Sequence[str], n_questions: int) -> None:
    """Prints each tab's time to its first interval next to what it may take."""
    alone = {
        model: firsts(browser, folder / f"alone {n}", [view(model, n_questions)])[0] for n, model in enumerate(models)
    }
    together = firsts(browser, folder / "together", [view(model, n_questions) for model in models])
    in_turn = sorted(zip(together, models, strict=True))
    for n_ahead, (took_s, model) in enumerate(in_turn):
        bound_s = (n_ahead + 1) * alone[model]
        print(f"{Path(model).name}: {took_s:.1f} s with {n_ahead} tabs ahead, {alone[model]:.1f} s alone: "
              f"{took_s / bound_s:.2f} of {bound_s:.1f} s, {verdict(took_s, bound_s)}", flush=True)  # fmt: skip
    six = firsts(browser, folder / "six", [view(model, n_questions, shots) for shots in (0, 5) for model in models])
    print(f"six tabs: first intervals after {', '.join(f'{each:.1f}' for each in sorted(six))} s", flush=True)


def firsts(browser: Browser, folder: Path, views: Sequence[str]) -> list[float]:
    """Seconds from opening to the first interval of each of these views, opened at once on a fresh server."""
    with ExitStack() as open_until_the_end:
        server = started(folder, open_until_the_end)
        pages = [new_page(browser, open_until_the_end) for _ in views]
        for page, address in zip(pages, views, strict=True):
            page.add_init_script(f"({FIRST})()")
            page.goto(f"{server.address}/{address}", wait_until="commit")
        return [page.wait_for_function("() => window.first").json_value() / 1000 for page in pages]


def alternate(browser: Browser, folder: Path, models: Sequence[str], n_drags: int, n_questions: int) -> None:
    """Prints the loads and the memory of a server whose two tabs are dragged in turn."""
    with ExitStack() as open_until_the_end:
        server = started(folder, open_until_the_end, HEADROOM_IDLE_SECONDS="0")
        pages = [new_page(browser, open_until_the_end) for _ in models]
        for page, model in zip(pages, models, strict=True):
            page.goto(f"{server.address}/{view(model, n_questions)}")
            await_mark(page, "figure", "measured", questions=n_questions)
        held, took = [], []
        for number in range(n_drags):
            page = pages[number % len(pages)]
            page.bring_to_front()
            took.append(released(page, LEVELS[number // len(pages) % len(LEVELS)], n_questions))
            held.append(server.weigh())
        loads, resident = [each["loads"] for each in held], [each["resident"] for each in held]
    print(f"{n_drags} drags on {' and '.join(Path(model).name for model in models)}, in turn: "
          f"{', '.join(f'{each:.1f}' for each in took)} s each; {held[-1]['models']} models in memory")  # fmt: skip
    print(f"loads after the first two drags: {loads[-1] - loads[1]}, {verdict(loads[-1], loads[1])}")
    growth = max(resident[1:]) / resident[1]
    print(f"memory: {resident[1]:.0f} MB after the first two, {max(resident[1:]):.0f} MB at most from then on: "
          f"{growth:.3f}, {verdict(growth, 1.05)}")  # fmt: skip


def released(page: Page, level: int, n_questions: int) -> float:
    """Seconds from a slider's release at a level to the figure of all questions."""
    x, y = grab(page)
    for percent in (100, 0, level):
        page.mouse.move(x(percent), y, steps=20)
    began_s = time.perf_counter()
    page.mouse.up()
    await_command(page, f"--prune-heads {level}")
    await_mark(page, "figure", "measured", questions=n_questions)
    return time.perf_counter() - began_s


def started(folder: Path, open_until_the_end: ExitStack, **environment: str) -> Server:
    folder.mkdir(parents=True)
    server = Server(folder, HEADROOM_SHIPPED="0", **environment)
    open_until_the_end.callback(server.end)
    return server


def new_page(browser: Browser, open_until_the_end: ExitStack) -> Any:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    open_until_the_end.callback(context.close)
    context.set_default_timeout(WAIT_MS)
    return context.new_page()


def verdict(found: float, bar: float) -> str:
    return "within" if found <= bar else "beyond"


if __name__ == "__main__":
    main()
