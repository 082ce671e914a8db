"""The Prune screen's cost panel: size of the layers under a mask, seconds a question, masked and sliced, and tokens a
second of a prompt and after it."""

from functools import partial

import numpy as np
import streamlit as st

from engine.accuracy.costs import Cost, Speed, cost, speed
from engine.models.masks import Mask
from engine.models.slicing import SLICE_BELOW
from pages.ui.page.runtime import in_memory, session
from pages.ui.page.tables import mask_in_words, whole_percent
from pages.ui.page.work import Work, live
from pages.ui.prune.screen import PruneResult

SLOT = "cost"
NAMES = {"full": "Full model", "masked": "Masked", "sliced": "Sliced"}
HELP = (
    "Masked: everything is computed, and pruned components are set to 0. Sliced: they are not computed; this is "
    "how accuracy is measured here. The sidebar counts the embeddings too."
)
SPEED_SLOT = "speed"
SPEED_HELP = "Full and pruned in turn, a prompt and what follows it with a cache of keys and values, in the background."


def draw_savings(shown: PruneResult, since_s: float) -> bool:
    """Draws the panel's inside; True."""
    live([SLOT], partial(draw_costs, shown), since_s)
    live([SPEED_SLOT], partial(draw_speed, shown), since_s)
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


def draw_speed(shown: PruneResult) -> None:
    """Draws the table if it is stored, and the job that measures it."""
    if shown.mask is None:
        return
    found, work = stored_speed(shown), Work(SPEED_SLOT, "Speed", speed(shown.x.target, shown.mask, again=True), 1)
    if found is not None:
        st.markdown(speed_table(found))
        st.caption(speed_note(found))
    if work.line():
        return
    work.offer("Measure tokens a second again" if found else "Measure tokens a second", "speed", SPEED_HELP)


def stored_speed(shown: PruneResult) -> Speed | None:
    """Returns the stored speed of the present mask."""
    return None if shown.mask is None else speed(shown.x.target, shown.mask).stored(session())


def speed_table(found: Speed) -> str:
    """Returns the speed as a Markdown table; rates are medians with the range of the turns."""
    rows = ["| | Unit | Full model | Pruned | Pruned / full |", "|:--|:--|--:|--:|--:|"]
    for row in found.rows():
        sides = [_cell(row, way) for way in ("full", "pruned")]
        rows.append(f"| {row['quantity']} | {row['unit']} | {sides[0]} | {sides[1]} | {row['ratio']:.2f} |")
    return "\n".join(rows)


def speed_note(found: Speed) -> str:
    """Returns how it was measured, as sentences."""
    busy = ": it was busy" if found.load > 0.75 * found.n_cpus else ""
    return (f"A prompt of {found.n_prompt} tokens, and {found.n_new} generated after it with a cache. Medians (range) "
            f"of {len(found.prompt['full'])} turns each, full and pruned in turn. Weights are the whole model's. The "
            f"machine's load was {found.load:.1f} on {found.n_cpus} cores{busy}.")  # fmt: skip


def _cell(row: dict[str, float], way: str) -> str:
    value = f"{row[way]:,.0f}"
    return f"{value} ({row[f'{way}_low']:,.0f} to {row[f'{way}_high']:,.0f})" if f"{way}_low" in row else value
