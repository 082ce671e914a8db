"""A talk of five slides in Chromium at 1920x1080: made from five screens, presented, and stepped through by keys.

    .venv/bin/python -m tests.benchmarks.bench_slides [--rounds 3] [--shots FOLDER]

Times begin at the click or key; a screen ends when its results are drawn, a step when all charts of the slide are. The
screens are those of the included model, with the results that come with it.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.browser import served, tab
from tests.benchmarks.measure import REPOSITORY, options
from tests.browser.conftest import await_mark

MADE_S, STEP_S = 120, 1.0  # bars
SCREENS = ("/", "/?mask=L1H1-3+L3H5", "/heads", "/text?mask=L1H1-3+L3H5", "/training")
RESTS = '[data-testid="stApp"][data-test-script-state="notRunning"]'
DRAWN = """at => document.getElementById("place").textContent.startsWith(`${at} /`)
  && [...document.querySelectorAll(".slide.shown .chart")].every(box => box.querySelector("svg.marks"))"""


def main() -> None:
    given = options(__doc__, rounds=3, shots=None)
    with tempfile.TemporaryDirectory() as folder:
        environment = {"HEADROOM_CACHE": f"{folder}/results", "HEADROOM_SHIPPED": "1"}
        with served(REPOSITORY / "app.py", REPOSITORY, **environment) as address, tab(1920, 1080) as page:
            heard: list[str] = []
            page.on("console", lambda message: heard.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: heard.append(str(error)))
            since_s = time.monotonic()
            for number, link in enumerate(SCREENS, 1):
                page.goto(f"{address}{link}")
                page.locator(".st-key-add_slide button").first.wait_for()
                page.locator(RESTS).wait_for()
                page.locator(".st-key-add_slide button").first.click()
                await_mark(page, "slide", "added", number=number)
            print(f"made in {time.monotonic() - since_s:.1f} s (bar {MADE_S} s)", flush=True)
            since_s = time.monotonic()
            page.locator(".st-key-present button").first.click()
            frame = page.locator("iframe[title=Slides]").element_handle().content_frame()
            frame.wait_for_function(DRAWN, arg=1)
            print(f"presented in {time.monotonic() - since_s:.2f} s")
            steps = [step(page, frame, at) for _ in range(given.rounds) for at in (*range(2, 6), 1)]
            print(f"step p50 {statistics.median(steps):.2f} s, longest {max(steps):.2f} s (bar {STEP_S} s)")
            for at in range(1, 6) if given.shots else ():
                step(page, frame, at)
                page.screenshot(path=Path(given.shots) / f"slide-{at}.png")
            print("console:", heard or "no error")


def step(page: Any, frame: Any, at: int) -> float:
    """Seconds from the key of slide `at` to its charts."""
    since_s = time.monotonic()
    page.keyboard.press(str(at))
    frame.wait_for_function(DRAWN, arg=at)
    return time.monotonic() - since_s


if __name__ == "__main__":
    main()
