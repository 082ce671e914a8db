"""Says that results on a screen are shipped, and offers to measure them on this computer."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from engine.models.session import Session, Target
from engine.progress import Progress
from engine.receipts import Measurements, Receipt, shipped_receipt
from pages.ui.page.marks import mark
from pages.ui.page.runtime import in_memory, jobs, session, store
from pages.ui.page.tables import plain
from pages.ui.page.work import Action, Work, live

LOOK, HERE, LOAD = "shipped", "measured here", "model ahead"  # slots
HELP = "Measures all of this screen on this computer. Shipped results are shown until they are replaced."


def draw_shipped(measurements: Measurements, of: str) -> None:
    """Draws where and when shipped results of this screen were measured, and the button that measures them here; `of`
    changes with the records read. Draws nothing if none is shipped.

    Shipped results are shown without the model, so it is loaded now, for what the user asks next.
    """
    shipped, targets = session().shipped, [each.target for each in measurements.values()]
    if shipped is None or not targets or targets[0].identity.digest not in shipped.models:
        return
    here = Work(HERE, "Measuring here", Action(of, partial(_measured_here, measurements, session().own())), 2)
    receipt, since_s = _receipt(measurements, of), time.monotonic()
    load = Action(f"load {targets[0]}", partial(_loaded, session(), targets[0]))
    ahead = Work(LOAD, "Loading the model", load, 5, while_seen=True)

    def draw() -> None:
        """Draws the caption, and the button or the progress."""
        caption_at = st.container(horizontal=True, vertical_alignment="center")
        is_offered = not here.line()
        if receipt is not None:
            with caption_at:
                st.caption(in_words(receipt))
                if is_offered:
                    here.offer("Measure here", "speed", HELP, type="tertiary")
            mark("shipped", "shown")
        if drawn and not in_memory(targets[0].spec) and jobs().running is None:
            ahead.start()
        drawn.append(True)

    drawn = list[bool]()  # what a timer draws follows what the browser has drawn: imports keep it from drawing
    live([LOOK, HERE, LOAD], draw, since_s, always=not in_memory(targets[0].spec))


def in_words(receipt: Receipt) -> str:
    """Returns text such as "With shipped results, measured 2026-11-25 on AMD EPYC, torch 2.13.0+cpu"; of results
    measured here that rest on a shipped part, its name."""
    on = receipt.get("processor") or receipt["machine"]
    when, torch = receipt["measured_at"][:10], receipt["versions"]["torch"]
    what = receipt.get("part", "").lower() or "results"
    return plain(f"With shipped {what}, measured {when} on {on}, torch {torch}")


def _receipt(measurements: Measurements, of: str) -> Receipt | None:
    """Returns a receipt of the shipped results, as last read while the worker has other work."""
    last = jobs().snapshot(LOOK)
    if jobs().running is not None and last is not None and last.owner == of:
        return last.value
    read = Action(f"{of} {store().n_puts}", partial(shipped_receipt, measurements, session()), reads=True)
    return Work(LOOK, "", read, 1, while_seen=True, owner=of).value()


def _measured_here(measurements: Measurements, own: Session) -> Iterator[Progress[Any]]:
    for name, measurement in measurements.items():
        for step in measurement.run(own):
            yield replace(step, value=None, message=step.message or name)


def _loaded(session: Session, target: Target) -> Iterator[Progress[Any]]:
    yield from session.loaded(target)
    yield Progress(1, 1)
