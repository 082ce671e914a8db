"""The Induction screen's second model: one score of both as maps on one scale, the number of induction heads in
each, and where the two differ most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from engine.heads.induction import SCORES, InductionScores, induction
from engine.models.session import Target
from engine.receipts import Measurements
from pages.ui.comparison import pairs
from pages.ui.comparison.second import heading
from pages.ui.controls.controls import one_of
from pages.ui.figures.charts import ROUGHLY
from pages.ui.figures.induction_scores import RULE
from pages.ui.figures.sheet import Sheet
from pages.ui.induction import charts
from pages.ui.induction.tables import finding, head_scores
from pages.ui.page.runtime import session
from pages.ui.page.tables import number, percent, plain
from pages.ui.page.work import Work

HELP = (
    "The same random tokens, as far as both have the same tokenizer. Heads are paired by layer and number, which says "
    "something of two precisions or revisions of one model. Chosen in the sidebar, under “Compare with”."
)
CORNER_HELP = f"Induction heads: {RULE}, as above."


@dataclass(frozen=True)
class FirstInduction:
    """The first model as the screen shows it: its scores, also as a table."""

    target: Target
    variant: str
    seed: int
    found: InductionScores
    frame: pd.DataFrame


def draw(of: FirstInduction, second: Target, sheet: Sheet) -> Measurements:
    """Draws the section on the second model, whose scores are measured if they are not stored. Gives what it shows."""
    names = (of.target.spec.in_words, second.spec.in_words)
    scores = induction(second, of.variant, of.seed)
    shows = {f"Scores of {names[1]}": scores}
    heading(of.target, second, HELP)
    found = scores.stored(session())
    if found is None:
        found = Work("second induction", f"Induction scores of {names[1]}", scores, while_seen=True).awaited()
    if found is None:
        return shows
    frame = head_scores(second.shape, found, ())
    sheet.tables[f"Induction scores, {names[1]}"] = frame
    st.markdown(said := "  \n".join(counts_in_words((of.frame, frame), names)), help=CORNER_HELP)
    sheet.says.append(said)
    named = {each: charts.TITLES[each] for each in SCORES}
    score = one_of(st.container(), "Score of both", named, "induction_both", "For the maps and the points below.")
    form, write = (".0%", percent) if score == "copying" else (ROUGHLY, partial(number, digits=3))
    both, title = [values_of(each, score) for each in (of.found, found)], charts.TITLES[score]
    draw_next = partial(pairs.draw_farthest, names, write)
    pairs.draw_pair((of.target, second), both, title, (title, form), "induction", sheet, draw_next)
    return shows


def values_of(found: InductionScores, score: str) -> np.ndarray:
    """Returns (L, H) as drawn: copying as a share."""
    return found.copying_share if score == "copying" else found.mean[score]


def counts_in_words(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> list[str]:
    """Names the induction heads of each model, one line per model."""
    return [f"**{plain(name)}**: {finding(frame)}" for frame, name in zip(frames, names, strict=True)]
