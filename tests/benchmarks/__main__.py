"""`make bench`: all comparisons one after another, in `docs/speed.json` and as a chart in `docs/speed.svg`.

    python -m tests.benchmarks [--quick] [importance drag ...]

With names, only those run anew; the others' figures stay as they were measured, each with its own date and load.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.benchmarks import chart
from tests.benchmarks.measure import REPOSITORY, machine

NAMES = ("scoring", "importance", "pruning", "induction", "drag", "memory", "training")
OUT = REPOSITORY / "docs"


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="which to run; all without")
    parser.add_argument("--quick", action="store_true", help="fewer tasks and rounds: minutes")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of speed.json and speed.svg")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    here, path = machine(), options.out / "speed.json"
    runs = kept(path, here) if options.names else {}
    for name in options.names or NAMES:
        try:
            for found in so_far(name, options.quick):  # one that is stopped keeps what it has
                runs[name] = found
                text = json.dumps({"machine": here, "runs": runs}, indent=1, ensure_ascii=False)
                path.write_text(f"{text}\n", "utf-8")
                chart.write(runs, options.out)
        except SystemExit as lacking:  # what this benchmark needs and this computer lacks
            print(lacking)
    print(f"\nWritten: {path} and the chart beside it.")


def so_far(name: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Runs `bench_<name>`; after each comparison all of them, with date, load before and seconds taken."""
    before, started, done = os.getloadavg()[0], time.perf_counter(), []
    date, family = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", None
    for comparison in import_module(f"tests.benchmarks.bench_{name}").compare(quick):
        if comparison.family != family:
            family = comparison.family
            print(f"\n{family} (minimum / geometric mean / maximum)")
        print(f"  {comparison.line()}", flush=True)
        done.append(comparison.record())
        seconds = round(time.perf_counter() - started)
        yield {
            "date": date, "quick": quick, "load_before": round(before, 2), "seconds": seconds, "comparisons": done,
        }  # fmt: skip


def kept(path: Path, here: dict[str, Any]) -> dict[str, Any]:
    """What was measured before, if it was on this machine with these versions."""
    try:
        before = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return before["runs"] if before.get("machine") == here else {}


if __name__ == "__main__":
    main()
