"""Which work Prune starts by itself for a minute after a drag, on a model whose order takes long: only what is short.

python -m tests.benchmarks.long_work /path/to/SmolLM2-135M piqa /path/to/task_data
"""

import sys
import tempfile
import threading
import time

import pytest
from streamlit.testing.v1 import AppTest

from pages.ui.page import runtime
from pages.ui.page.job_words import LONG_S
from pages.ui.page.work import Work
from tests.conftest import HANG_S, REPOSITORY
from tests.pages.conftest import slide, tab_of_tests

WATCHED_S, EVERY_S, PAUSE_S = 60.0, 0.02, 1.0
MOST_S = 120.0  # for the first answers of the full model, from which forecasts are made
CLICKED = "order of choice"  # the slot of what only a click starts


def main(model: str, task: str, data: str) -> int:
    """Opens Prune, drags to 40%, and prints every job of the next minute; returns 1 if one that nobody clicked was
    forecast above the budget."""
    forecasts: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADROOM_CACHE", folder)
        patch.delenv("HEADROOM_IDLE_SECONDS", raising=False)  # tests allow any work ahead
        patch.setattr(runtime, "tab", tab_of_tests)
        real = Work.start

        def start(work: Work, again: bool = False):
            forecasts.setdefault(work.slot, None if work.slot in ("accuracy", "estimates") else work.takes_s())
            return real(work, again)

        patch.setattr(Work, "start", start)
        at = AppTest.from_file(str(REPOSITORY / "app.py"), default_timeout=HANG_S)
        for name, value in {"model": model, "data_dir": data, "prune_task": task, "prune_shots": "5"}.items():
            at.query_params[name] = value
        began, seen = time.monotonic(), None
        while time.monotonic() < began + MOST_S and (seen is None or not seen.full):
            _run(at)
            job = runtime.jobs().snapshot("accuracy")
            seen = None if job is None else job.value
        forecasts.clear()
        ran = _watched(at)
        runtime.jobs().close()
    print(f"{'slot':22} {'ran, s':>8} {'forecast, s':>12}")
    for slot, seconds in ran.items():
        forecast = forecasts.get(slot)
        print(f"{slot:22} {seconds:8.1f} {'' if forecast is None else f'{forecast:12.1f}'}")
    said = [line for each in at.main.markdown for line in each.value.split("\n") if " heads, " in line]
    begins = ("Measure", "Order by", "Ask", "Use")
    print("figure:", [each.value for each in at.metric], said, [each.text for each in at.progress])
    print("offered:", [each.label for each in at.main.button if each.label.startswith(begins)])
    long = [slot for slot in ran if slot != "accuracy" and (forecasts.get(slot) or 0.0) > LONG_S]
    return int(bool(long) or CLICKED in ran)


def _watched(at: AppTest) -> dict[str, float]:
    """Returns the seconds that each slot's job ran in the minute after the drag."""
    ran: dict[str, float] = {}
    ends = time.monotonic() + WATCHED_S

    def watch() -> None:
        last = time.monotonic()
        while last < ends:
            time.sleep(EVERY_S)
            now, running = time.monotonic(), runtime.jobs()._measuring.running
            if running is not None:
                slot = next((at[1] for at, job in [*runtime.jobs()._slots.held.items()] if job is running), "replaced")
                ran[slot] = ran.get(slot, 0.0) + now - last
            last = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    slide(at, "prune_heads", 40)
    while watcher.is_alive():
        _run(at)
    return ran


def _run(at: AppTest) -> None:
    at.run()
    assert not at.exception, at.exception
    time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
