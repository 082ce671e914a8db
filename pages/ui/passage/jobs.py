"""The jobs behind one run of the Passage screen: what is there at once, and what is being measured."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import streamlit as st

from engine.jobs import Progress
from engine.texts.tokenloss import TokenLosses
from pages.ui.passage import reading
from pages.ui.shared.runtime import jobs, models, store
from pages.ui.shared.work import progress_line

PATIENCE_S = 1.0  # after so long the progress is shown; until then the screen stays as it was
SLICE_S = 0.05
SLOTS = {"a": "passage A", "order": "passage order", "b": "passage B"}


class Run:
    """One run of the page: `waiting` holds the slots of jobs that go on after it, each with what starts it again."""

    def __init__(self) -> None:
        self.since_s = time.monotonic()
        self.waiting: dict[str, Callable[[], object]] = {}

    def order(self, x: reading.Reading) -> Any:
        """The orders of the ranking, if they are there soon; else None."""
        measure = partial(reading.measure_order, x, models(), store())
        return x.known_order or self._started(SLOTS["order"], x.order_key, measure)

    def losses(self, x: reading.Reading, which: str, side: reading.Side) -> TokenLosses | None:
        """The losses of the whole text, stored or measured soon; else None, and they are being measured."""
        found, slot = reading.recall(x, side, store()), SLOTS[which]
        if found is None:
            measure = partial(reading.measure, x, side, which.upper(), models(), store())
            return self._started(slot, side.key(x.text, x.bos), measure)
        jobs().drop(slot)
        return found

    def progress(self) -> None:
        """Draws how the jobs stand that go on."""
        for slot, again in self.waiting.items():
            if (job := jobs().snapshot(slot)) is not None:
                progress_line(slot, job, "Ranking" if slot == SLOTS["order"] else "Losses", again)

    def _started(self, slot: str, key: str, measure: Callable[[], Iterator[Progress]]) -> Any:
        jobs().submit(slot, key, measure)
        while True:
            job = jobs().join(slot, SLICE_S)
            if job is not None and job.key == key and job.state == "done":
                return job.value
            late = time.monotonic() > self.since_s + PATIENCE_S
            if job is None or job.key != key or job.finished or late:
                self.waiting[slot] = partial(jobs().submit, slot, key, measure, again=True)
                return None
            st.session_state.get("framed")  # here Streamlit ends this run when a slider has moved on meanwhile


def so_far(x: reading.Reading, which: str, side: reading.Side | None) -> TokenLosses | None:
    """What the job has measured of this side, and None when there is none or it is another tab's."""
    job = jobs().snapshot(SLOTS[which])
    return job.value if job is not None and side is not None and job.key == side.key(x.text, x.bos) else None
