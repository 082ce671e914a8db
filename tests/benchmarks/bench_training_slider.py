"""The slider of training in Chromium: how long from a move until every chart's marker, and the passage's tint, have
followed. `python -m tests.benchmarks.bench_training_slider http://127.0.0.1:8501 [RUN,RUN,…]` measures a server that is
running, on the runs that it has; it prints milliseconds, p50 and p95, to the end of the frame that shows the move.
"""

import statistics
import sys
import time

from playwright.sync_api import sync_playwright

from tests.browser.conftest import CHROMIUM, FLAGS

N_MOVES, WAIT_MS = 60, 60_000
# a move by hand, as far as the frame that shows it: charts draw in a microtask or the next frame
MOVE = """async share => {
  const input = [...document.querySelectorAll("*")].flatMap(each => each.shadowRoot ? [each.shadowRoot] : [])
    .map(root => root.querySelector("input#moment")).find(Boolean)
  const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)))
  const markers = () => [...document.querySelectorAll("[data-testid=stVegaLiteChart] .mark-rule.role-mark line")]
    .map(line => line.getAttribute("transform")).join()
  const before = markers(), started = performance.now()
  input.value = 1000 * share
  input.dispatchEvent(new Event("input"))
  while (markers() === before && performance.now() < started + 3000) await frame()
  await frame()
  return performance.now() - started
}"""


def measured(address: str, runs: str) -> tuple[float, list[float]]:
    """Seconds to the first chart, and the milliseconds of each move."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(WAIT_MS)
        since_s = time.monotonic()
        page.goto(f"{address}/training" + (f"?training_runs={runs}" if runs else ""))
        page.wait_for_selector("[data-testid=stVegaLiteChart] .mark-line")
        first_s = time.monotonic() - since_s
        page.wait_for_selector(".text[data-snapshot]")
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(3000)  # the parts below are drawn
        moves = [float(page.evaluate(MOVE, (number * 7 % N_MOVES + 1) / (N_MOVES + 1))) for number in range(N_MOVES)]
        browser.close()
    return first_s, moves


def main() -> None:
    first_s, moves = measured(sys.argv[1].rstrip("/"), sys.argv[2] if len(sys.argv) > 2 else "")
    p50, p95 = statistics.median(moves), statistics.quantiles(moves, n=20)[-1]
    print(f"first chart after {first_s:.2f} s; {len(moves)} moves: p50 {p50:.0f} ms, p95 {p95:.0f} ms")


if __name__ == "__main__":
    main()
