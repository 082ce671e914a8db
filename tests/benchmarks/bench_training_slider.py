"""The slider of training in Chromium: how long from a move until every chart's marker has followed.
`python -m tests.benchmarks.bench_training_slider http://127.0.0.1:8501 [RUN]` measures a server that is running, on the
runs that it has; it prints milliseconds, p50 and p95, to the end of the frame that shows the move.
"""

import statistics
import sys
import time

from tests.benchmarks.browser import tab

N_MOVES = 60
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


def main() -> None:
    address, run = sys.argv[1].rstrip("/"), "".join(sys.argv[2:3])
    with tab(1280, 800) as page:
        since_s = time.monotonic()
        page.goto(f"{address}/training" + (f"?training_run={run}" if run else ""))
        page.wait_for_selector("[data-testid=stVegaLiteChart] .mark-line")
        first_s = time.monotonic() - since_s
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(3000)  # the parts below are drawn
        moves = [float(page.evaluate(MOVE, (number * 7 % N_MOVES + 1) / (N_MOVES + 1))) for number in range(N_MOVES)]
    p50, p95 = statistics.median(moves), statistics.quantiles(moves, n=20)[-1]
    print(f"first chart after {first_s:.2f} s; {len(moves)} moves: p50 {p50:.0f} ms, p95 {p95:.0f} ms")


if __name__ == "__main__":
    main()
