"""The Prune screen's cost panel: size of the layers under a mask, and seconds a question, masked and sliced."""

from functools import partial

import numpy as np
import streamlit as st

from engine.accuracy.costs import Cost, cost
from engine.models.masks import Mask
from engine.models.slicing import SLICE_BELOW
from pages.ui.page.runtime import in_memory, session
from pages.ui.page.tables import mask_in_words, whole_percent
from pages.ui.page.work import Work, live
from pages.ui.prune.panels import speeds
from pages.ui.prune.screen import PruneResult

SLOT = "cost"
NAMES = {"full": "Full model", "masked": "Masked", "sliced": "Sliced"}
HELP = (
    "Masked: everything is computed, and pruned components are set to 0. Sliced: they are not computed; this is "
    "how accuracy is measured here. The sidebar counts the embeddings too."
)


def draw_savings(shown: PruneResult, since_s: float) -> bool:
    """Draws the panel's inside; True."""
    live([SLOT], partial(draw_costs, shown), since_s)
    live([speeds.SLOT], partial(speeds.draw_speed, shown), since_s)
    return True


def draw_costs(shown: PruneResult) -> None:
    """The upper half: what is stored of the mask that is set, and the job that measures the rest."""
    x, mask = shown.x, shown.mask
    if mask is None:
        st.caption("Which heads and FFNs go is not known before importance is measured.")
        return
    wanted = partial(cost, x.target, x.questions, mask)
    found = wanted().stored(session()) or wanted(timed=False).stored(session())
    sizes, times = (Work(SLOT, "Cost", each, 1) for each in (wanted(timed=False), wanted(again=True)))
    st.markdown(f"{mask_in_words(x.shape, mask)}.", help=HELP)
    if found is not None:
        table_at, notes_at = st.columns([6, 5], gap="medium")
        table_at.markdown(table(found))
        notes_at.caption("  \n".join(notes(found, mask)))
    if sizes.line() or times.line():
        return
    if found is None and sizes.now() is None and in_memory(x.target.spec):
        sizes.start()  # they take a moment
        st.rerun()
    label = "Measure the time again" if found is not None and found.seconds else "Measure the time"
    times.offer(label, "timer", "A few questions, masked and sliced in turn, in the background.")


def table(found: Cost) -> str:
    """Returns the cost as a Markdown table; times are medians with the range of the rounds."""
    sizes = {"full": (found.n_params_full, found.n_bytes_full), "masked": (found.n_params_full, found.n_bytes_full),
             "sliced": (found.n_params, found.n_bytes)}  # fmt: skip
    rows = ["| | Parameters without embeddings | Bytes of these | ms a question |", "|:--|--:|--:|--:|"]
    for way, (n_params, n_bytes) in sizes.items():
        rows.append(f"| {NAMES[way]} | {n_params:,} | {_bytes(n_bytes)} | {_milliseconds(found.seconds.get(way))} |")
    return "\n".join(rows)


def notes(found: Cost, mask: Mask) -> list[str]:
    """Returns the notes on the table, as sentences."""
    n_sliced = mask.n_heads_pruned - found.n_heads_masked
    same = found.n_params == found.n_params_full
    said = []
    if not found.seconds:
        said.append("The time is not measured yet.")
    else:
        masked, small = (float(np.median(found.seconds[way])) for way in ("masked", "sliced"))
        between = "What differs is noise" if same else f"Sliced takes **{small / masked:.2f}** times as long as masked"
        busy = ": it was busy" if found.load > 0.75 * found.n_cpus else ""
        said.append(f"{between}. Medians (range) of {len(found.seconds['sliced'])} rounds of {found.n_questions} "
                    f"questions; the smaller weights took {1000 * found.slicing_s:,.0f} ms to make. The machine's load "
                    f"was {found.load:.1f} on {found.n_cpus} cores{busy}.")  # fmt: skip
    if mask.is_full:
        said.append("Nothing is pruned: all three are the same model.")
    elif found.n_heads_masked:
        least = whole_percent(1 - SLICE_BELOW)
        said.append(f"{n_sliced:,} of {mask.n_heads_pruned:,} pruned heads are sliced, the others masked: a layer that "
                    f"loses less than {least} of its heads saves nothing, nor does one whose queries, keys and values "
                    "come from one projection.")  # fmt: skip
    return said


def _bytes(n: int) -> str:
    return f"{n / 1e6:,.1f} MB" if n < 1e9 else f"{n / 1e9:,.2f} GB"


def _milliseconds(seconds: np.ndarray | None) -> str:
    if seconds is None:
        return "—"
    low, middle, high = 1000 * np.quantile(seconds, [0, 0.5, 1])
    digits = 1 if middle < 100 else 0
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"
