"""The jobs of one run of the Passage screen: losses that are stored, and those being measured."""

import time
from typing import Any

from engine.importance.rankings_of import Orders, orders_of
from engine.texts.tokenloss import TokenLosses
from pages.ui.page.runtime import jobs, session
from pages.ui.page.streamlit_internals import stop_if_outdated
from pages.ui.page.work import Work
from pages.ui.passage import reading

PATIENCE_S = 1.0  # after this the progress is shown; until then the screen stays unchanged
SLICE_S = 0.05


class PassageRun:
    """One run of the page: `waiting` holds, by slot, the work that continues after it."""

    def __init__(self) -> None:
        self.since_s = time.monotonic()
        self.waiting: dict[str, Work[Any]] = {}

    def order(self, x: reading.PassageControls) -> Orders | None:
        """Returns the pruning orders if they are available soon, else None."""
        wanted = orders_of(x.whole.target, x.pruning, x.data_dir)
        return x.known_order or self._started(Work("passage order", "Ranking", wanted, while_seen=True))

    def losses(self, x: reading.PassageControls, which: str, side: reading.PassageModel) -> TokenLosses | None:
        """Returns the losses of the whole text, stored or measured soon; else None, and they are being measured."""
        found, work = x.losses(side).stored(session()), losses_work(x, which, side)
        if found is None:
            return self._started(work)
        jobs().drop(work.slot)
        return found

    def progress(self) -> None:
        """Draws the progress of the work that continues."""
        for work in self.waiting.values():
            work.line()

    def _started(self, work: Work[Any]) -> Any:
        work.start()
        while True:
            jobs().join(work.slot, SLICE_S)
            if (job := work.now()) is not None and job.state == "done":
                return job.value
            if not work.under_way or time.monotonic() > self.since_s + PATIENCE_S:
                self.waiting[work.slot] = work
                return None
            stop_if_outdated()  # for example when a slider has moved meanwhile


def losses_work(x: reading.PassageControls, which: str, side: reading.PassageModel) -> Work[TokenLosses]:
    """Returns the work that measures the losses of the text by A (`which` a) or by B."""
    name = which.upper()
    return Work(f"passage {name}", f"Losses of {name}", x.losses(side), while_seen=True)


def so_far(x: reading.PassageControls, which: str, side: reading.PassageModel | None) -> TokenLosses | None:
    """Returns the losses of this side so far; None if there are none."""
    return losses_work(x, which, side).found if side is not None else None
