"""Measured savings of pruning: tokens a second of a prompt and after it, bytes of weights, keys and values."""

import streamlit as st

from engine.accuracy.costs import Speed, speed
from pages.ui.page.runtime import session
from pages.ui.page.work import Work
from pages.ui.prune.screen import PruneResult

SLOT = "speed"
ABOUT = "Full and pruned in turn, a prompt and what follows it with a cache of keys and values, in the background."


def draw_speed(shown: PruneResult) -> None:
    """Draws the table if it is stored, and the job that measures it."""
    if shown.mask is None:
        return
    found, work = stored(shown), Work(SLOT, "Speed", speed(shown.x.target, shown.mask, again=True), 1)
    if found is not None:
        st.markdown(table(found))
        st.caption(note(found))
    if work.line():
        return
    work.offer("Measure tokens a second again" if found else "Measure tokens a second", "speed", ABOUT)


def stored(shown: PruneResult) -> Speed | None:
    """Returns the stored speed of the present mask."""
    return None if shown.mask is None else speed(shown.x.target, shown.mask).stored(session())


def table(found: Speed) -> str:
    """Returns the speed as a Markdown table; rates are medians with the range of the turns."""
    rows = ["| | Unit | Full model | Pruned | Pruned / full |", "|:--|:--|--:|--:|--:|"]
    for row in found.rows():
        sides = [_cell(row, way) for way in ("full", "pruned")]
        rows.append(f"| {row['quantity']} | {row['unit']} | {sides[0]} | {sides[1]} | {row['ratio']:.2f} |")
    return "\n".join(rows)


def note(found: Speed) -> str:
    """Returns how it was measured, as sentences."""
    busy = ": it was busy" if found.load > 0.75 * found.n_cpus else ""
    return (f"A prompt of {found.n_prompt} tokens, and {found.n_new} generated after it with a cache. Medians (range) "
            f"of {len(found.prompt['full'])} turns each, full and pruned in turn. Weights are the whole model's. The "
            f"machine's load was {found.load:.1f} on {found.n_cpus} cores{busy}.")  # fmt: skip


def _cell(row: dict[str, float], way: str) -> str:
    value = f"{row[way]:,.0f}"
    return f"{value} ({row[f'{way}_low']:,.0f} to {row[f'{way}_high']:,.0f})" if f"{way}_low" in row else value
