"""A real model, live: what a user waits for in Chromium, and what the server does when nobody looks any more.

    HEADROOM_BENCH_LLAMA=FOLDER .venv/bin/python -m tests.benchmarks.bench_live [--precision int8]

PIQA at 0 shots over 100 questions, so real task data must be there (HEADROOM_TASK_DATA). Beside seconds on the clock
stand seconds of the server's own processor time: they say the same beside other work.
"""

import argparse
import os
import statistics
import tempfile
import time
from typing import Any

import psutil

from tests.benchmarks.bench_drag import MEASURED, WATCH, served
from tests.benchmarks.measure import REPOSITORY, task_data

MODEL = os.environ.get("HEADROOM_BENCH_LLAMA")
N, LEVELS, WAIT_MS = 100, (60, 45, 75, 25, 55), 600_000
UNRANKED = 35
TEXT = "The ferry left the harbour at noon with forty people and a horse on board. " * 9
# How long the page said "waiting" without saying for what, in ms.
MUTE = """() => {
  window.mute = 0
  let since = null
  setInterval(() => {
    const mute = /waiting(?! for: \\S)/.test(document.body.innerText)
    since = mute ? since ?? performance.now() : null
    if (mute) window.mute = Math.max(window.mute, performance.now() - since)
  }, 50)
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", default="int8")
    precision = parser.parse_args().precision
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import CHROMIUM, FLAGS

    if MODEL is None or CHROMIUM is None or task_data() is None:
        print("left out: it takes HEADROOM_BENCH_LLAMA, task data and Chromium")
        return
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        # the tests' own conftest allows more work ahead; here it is what users have
        environment = {"HEADROOM_CACHE": f"{folder}/results", "HEADROOM_IDLE_SECONDS": ""}
        with served(REPOSITORY / "app.py", REPOSITORY, **environment) as address:
            server = next(each for each in psutil.Process().children() if "streamlit" in " ".join(each.cmdline()))
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            page.set_default_timeout(WAIT_MS)
            run(page, server, f"{address}/?model={MODEL}&precision={precision}&data_dir={task_data()}")
            browser.close()
            said("every browser closed, until the server rests", *until_rest(server))


def run(page: Any, server: psutil.Process, address: str) -> None:
    """One visit, from the first page to a closed second tab."""
    from tests.browser.conftest import await_mark

    began = now(server)
    page.goto(f"{address}&prune_task=piqa&prune_shots=0&prune_limit={N}")
    await_mark(page, "figure", "measured", questions=N)
    said("the full model's figure, model and libraries loaded", *since(server, began))
    page.evaluate(WATCH)
    page.evaluate(MUTE)
    first, whole = released(page, server, UNRANKED)
    said("released without the ranking: first figure", *first, bar=8)
    said("released without the ranking: all questions", *whole, bar=18)
    page.wait_for_timeout(8000)
    taken = []
    for level in LEVELS:
        taken.append(released(page, server, level))
        page.wait_for_timeout(3000)
    firsts, wholes = ([each[which][0] for each in taken] for which in (0, 1))
    cpu = [statistics.median(each[which][1] for each in taken) for which in (0, 1)]
    said("released with the ranking: first figure, p50", statistics.median(firsts), cpu[0], bar=2.5)
    said("released with the ranking: first figure, slowest", max(firsts), cpu[0], bar=4)
    said("released with the ranking: all questions, slowest", max(wholes), cpu[1], bar=12)
    print(f"  {'said waiting and not for what, longest':58s} {page.evaluate('window.mute') / 1000:7.1f} s   (asked: 1)")
    page.get_by_role("link", name="Attention").click()
    drawn(page)
    page.get_by_role("button", name="Your own text").click()
    page.get_by_role("textbox", name="Paste a text").fill(TEXT)
    page.get_by_role("textbox", name="Paste a text").press("Control+Enter")
    page.wait_for_timeout(1000)
    began = now(server)
    page.get_by_role("button", name="Use the pasted text").click()
    page.locator('input[value="Pasted text"]').first.wait_for()
    drawn(page)
    said("a new text on Attention", *since(server, began), bar=3)
    other = page.context.new_page()
    other.goto(f"{address}&prune_task=hellaswag&prune_shots=0&prune_limit=5000")
    await_mark(other, "job", "running", slot="accuracy")
    other.close()
    said("two tabs, one closed, until the server rests", *until_rest(server), bar=5)


def released(page: Any, server: psutil.Process, level: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """((seconds, processor seconds) from the release to the first figure, the same to all questions)."""
    from tests.browser.test_drag import grab

    x, y = grab(page)
    for percent in (90, level):
        page.mouse.move(x(percent), y, steps=10)
    page.wait_for_timeout(300)
    page.evaluate("window.seen = []")
    began = now(server)
    page.mouse.up()
    pruned = "+each[2].heads > 0"
    page.wait_for_function(f"() => window.seen.some(each => {pruned} && ({MEASURED})(each, +each[2].heads, 1))")
    first = since(server, began)
    page.wait_for_function(f"() => window.seen.some(each => {pruned} && ({MEASURED})(each, +each[2].heads, {N}))")
    return first, since(server, began)


def drawn(page: Any) -> None:
    """Waits until the Attention view shows a pattern of the text that is chosen."""
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    page.locator(".screen:not(.waiting)").wait_for()
    page.locator(".readout h4").first.wait_for()


def until_rest(server: psutil.Process) -> tuple[float, float]:
    """(seconds until the server took less than a tenth of a processor for a second, processor seconds till then)."""
    began = now(server)
    while True:
        before = now(server)
        time.sleep(1.0)
        seconds, cpu = since(server, before)
        if cpu < 0.1 * seconds:
            return before[0] - began[0], before[1] - began[1]


def now(server: psutil.Process) -> tuple[float, float]:
    return time.monotonic(), sum(server.cpu_times()[:2])


def since(server: psutil.Process, began: tuple[float, float]) -> tuple[float, float]:
    seconds, cpu = now(server)
    return seconds - began[0], cpu - began[1]


def said(what: str, seconds: float, cpu: float, bar: float | None = None) -> None:
    asked = "" if bar is None else f"   (asked: {bar:g})"
    print(f"  {what:58s} {seconds:7.1f} s {cpu:7.1f} s of processor time{asked}", flush=True)


if __name__ == "__main__":
    main()
