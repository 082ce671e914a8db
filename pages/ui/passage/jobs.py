"""The jobs behind one run of the Passage screen: what is there at once, and what is being measured."""

import time
from typing import Any

from engine.importance.rankings_of import Orders, orders_of
from engine.texts.tokenloss import TokenLosses
from pages.ui.page.runtime import jobs, session
from pages.ui.page.streamlit_internals import stop_if_outdated
from pages.ui.page.work import Work
from pages.ui.passage import reading

PATIENCE_S = 1.0  # after so long the progress is shown; until then the screen stays as it was
SLICE_S = 0.05


class PassageRun:
    """One run of the page: `waiting` holds, by slot, the work that goes on after it."""

    def __init__(self) -> None:
        self.since_s = time.monotonic()
        self.waiting: dict[str, Work[Any]] = {}

    def order(self, x: reading.PassageControls) -> Orders | None:
        """The orders of the ranking, if they are there soon; else None."""
        wanted = orders_of(x.whole.target, x.pruning, x.data_dir)
        return x.known_order or self._started(Work("passage order", "Ranking", wanted, while_seen=True))

    def losses(self, x: reading.PassageControls, which: str, side: reading.PassageModel) -> TokenLosses | None:
        """The losses of the whole text, stored or measured soon; else None, and they are being measured."""
        found, work = x.losses(side).stored(session()), losses_work(x, which, side)
        if found is None:
            return self._started(work)
        jobs().drop(work.slot)
        return found

    def progress(self) -> None:
        """Draws how the work stands that goes on."""
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
            stop_if_outdated()  # as when a slider has moved on meanwhile


def losses_work(x: reading.PassageControls, which: str, side: reading.PassageModel) -> Work[TokenLosses]:
    """What measures the losses of the text by A (`which` a) or by B."""
    name = which.upper()
    return Work(f"passage {name}", f"Losses of {name}", x.losses(side), while_seen=True)


def so_far(x: reading.PassageControls, which: str, side: reading.PassageModel | None) -> TokenLosses | None:
    """What has been measured of this side, and None when there is nothing or it is another tab's."""
    return losses_work(x, which, side).found if side is not None else None
