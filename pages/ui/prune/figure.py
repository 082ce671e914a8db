"""An accuracy as one large figure. The number is gray while it is an estimate, and until all questions are answered."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from engine.statistics import MIN_QUESTIONS
from engine.views.accuracy import Standing
from engine.views.estimates import EstimateLine, trust
from pages.ui.figures.drawing import change_style
from pages.ui.page.tables import percent, plain, whole_percent

HELP = (
    "The interval is Wilson's. The length-normalized score divides each choice's log-likelihood by its characters. "
    "Gained and lost count the same questions before and after; p is McNemar's exact test at 5%, the interval of the "
    "change is Bonett and Price's. Neither knows how many levels you look at: one in twenty differs by chance. "
    "A published value is lm-evaluation-harness 0.3's, of all questions of the task."
)
ESTIMATE_HELP = (
    "To first order: log-likelihoods of the full model less the gradients of the pruned components, corrected by "
    "levels that were measured. No forward pass."
)


def draw_standing(title: str, shown: Standing, more: Sequence[str] = ()) -> None:
    """Draws the accuracy so far, its change against the full model, and how certain both are; its help says `more`."""
    change = shown.change if shown.is_sure else None
    style = change_style(0.0, False) if change is None else change_style(change.difference, change.is_clear)
    _draw_number(title, shown.value, shown.delta, not shown.is_sure, **style)
    details = [*shown.details, *more]
    lines = [line if not shown.is_sure else f":small[{line}]" for line in shown.lines]  # the first is long
    st.markdown("  \n".join(lines), help="  \n".join([*details, "", HELP] if details else [HELP]))


def draw_estimate(title: str, line: EstimateLine, permille: int, what: str, total: int) -> str:
    """Draws the accuracy of a level while the slider moves, of `total` questions if it was measured before; returns its
    state."""
    value, delta, about, state = "…", "not measured yet", "Release to measure it.", "unknown"
    if permille in line.measured:
        value, delta = percent(line.measured[permille]), "measured before"
        about, state = "Release to see it in full.", "stored"
    elif permille in line.estimated:
        about = trust(line, permille)
        if line.estimated[permille].shown:
            value, delta = f"≈ {whole_percent(line.estimated[permille].estimated)}", "estimate, not measured"
            state = "estimate"
        else:
            about += " Release to measure it."
    is_gray = state != "stored" or total < MIN_QUESTIONS
    _draw_number(title, value, delta, is_gray, **change_style(0.0, False))
    st.markdown(f"{what}  \n{about}", help=ESTIMATE_HELP)
    return state


def _draw_number(title: str, value: str, delta: str, is_gray: bool, **style: Any) -> None:
    with st.container(key=f"prune_number_{'gray' if is_gray else 'sure'}"):
        st.metric(f"{plain(title)}: questions right", value, delta, **style)
