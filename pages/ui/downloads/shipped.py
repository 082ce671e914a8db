"""Shipped results: the button that measures them here, and their model loaded ahead."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from engine.models.session import Session, Target
from engine.progress import Progress
from engine.receipts import Measurements
from pages.ui.page.marks import mark
from pages.ui.page.runtime import jobs, session
from pages.ui.page.work import Action, Work, live

HERE, LOAD = "measured here", "model ahead"  # slots
HELP = "Measures all of this screen on this computer. Shipped results are shown until they are replaced."


def load_ahead(measurements: Measurements) -> None:
    """Loads the model of shipped results, which are shown without it, for what the user asks next; draws nothing. The
    page runs again once it has been loaded, or once the results have been measured here."""
    if not _are_shipped(measurements):
        return
    [target, *_], drawn = [each.target for each in measurements.values()], list[bool]()
    load = Action(f"load {target}", partial(_loaded, session(), target))
    ahead, since_s = Work(LOAD, "Loading the model", load, 5, while_seen=True), time.monotonic()

    def start() -> None:
        """Starts it at a timer's run, which follows what the browser has drawn: imports keep it from drawing."""
        if drawn and not session().models.holds(target.spec) and jobs().running is None:
            ahead.start()
        drawn.append(True)

    live([HERE, LOAD], start, since_s, always=not session().models.holds(target.spec))


def offer_here(measurements: Measurements, of: str) -> None:
    """Draws the button that measures shipped results of this screen here, or its progress; `of` changes with the
    records read."""
    here = Work(HERE, "Measuring here", Action(of, partial(_measured_here, measurements, session().own())), 2)

    def draw() -> None:
        if not here.line():
            here.offer("Measure here", "speed", HELP)

    live([HERE], draw, time.monotonic())
    mark("shipped", "shown")


def _are_shipped(measurements: Measurements) -> bool:
    """Returns whether results of their model are shipped."""
    shipped, targets = session().shipped, [each.target for each in measurements.values()]
    return shipped is not None and bool(targets) and targets[0].identity.digest in shipped.models


def _measured_here(measurements: Measurements, own: Session) -> Iterator[Progress[Any]]:
    for name, measurement in measurements.items():
        for step in measurement.run(own):
            yield replace(step, value=None, message=step.message or name)


def _loaded(session: Session, target: Target) -> Iterator[Progress[Any]]:
    yield from session.loaded(target)
    yield Progress(1, 1)
