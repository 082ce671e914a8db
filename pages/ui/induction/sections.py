"""The folded sections of the Induction screen: each is drawn once it is unfolded, and its title says what it shows."""

import time
from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st

from engine.heads.induction import SCORES, InductionScores
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from pages.ui.controls.controls import folded
from pages.ui.controls.study import Setup
from pages.ui.figures import induction_scores
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.empty import empty_state
from pages.ui.figures.sheet import Sheet
from pages.ui.induction import charts, overlap, together
from pages.ui.induction.selection import chart_with_heads, head_table
from pages.ui.induction.tables import in_words
from pages.ui.page.job_words import LONG_S
from pages.ui.page.runtime import end_run, first_figure_s
from pages.ui.page.tables import plain
from pages.ui.page.work import Work, live

ABOUT = """
An **induction head** completes patterns. When a token comes up again, it looks at what followed it the last time
(*prefix matching*) and raises the probability of just that (*copying*):

`the` `red` `fox` `ran` … `the` `red` → looks at **`fox`**, and says **fox**

It needs a partner in an earlier layer, a *previous-token head*, which writes into each position what stood before it.
Each score here is measured on random tokens, where nothing but the repetition can help (10 examples of 25 tokens, 4
times over). The weights' own scores, OV eigenvalues and QK trace, need no input.

[Olsson et al. 2022](https://transformer-circuits.pub/2022/in-context-learning-and-induction-heads/index.html)
found such heads; [Bansal et al. 2022](https://arxiv.org/abs/2212.09095) asked how many of them importance keeps.
Where our numbers differ from the latter's code: the position after the beginning token does not count as a repeat, and
copying is measured on the real residual stream, not on embeddings fed to every layer. `induction` on the bench has the
variant of that code, too.
"""
SHOWS = "You will see which heads match prefixes and copy, on a map of all heads."
MEASURE_HELP = "Attention and logits on repeated random tokens, in the background. Stored results are kept."


@dataclass(frozen=True)
class InductionView:
    """The subject of the sections: the model, its scores (also as a table), and the task."""

    setup: Setup
    target: Target
    found: InductionScores
    frame: pd.DataFrame
    task: TaskSpec


def await_scores(work: Work[InductionScores], setup: Setup) -> InductionScores:
    """Returns the scores; until they are measured, a sketch of the map replaces the rest of the page, with the progress
    or, if that takes longer than background work may, with the button that starts it."""
    since_s, takes_s = time.monotonic(), work.takes_s() or 0.0
    if setup.spec.is_demo or takes_s <= max(LONG_S, first_figure_s()) or work.now() is not None:
        if (found := work.value()) is not None:
            return found

    def draw_progress() -> None:
        if not work.line():
            work.offer("Measure induction scores", "repeat", MEASURE_HELP, type="primary")

    demo = {} if setup.spec.is_demo else {"model": "demo", "precision": "int8"}
    with empty_state("matrix", SHOWS, True, demo), st.container(width="stretch" if work.under_way else "content"):
        live([work.slot], draw_progress, since_s)
    end_run()


def draw(view: InductionView, since_s: float, sheet: Sheet) -> None:
    """Draws the sections, folded at first."""
    setup, target, frame, task = view.setup, view.target, view.frame, view.task
    for label, key, icon, inside in (
        (f"Ablating the top heads together: accuracy on {plain(task.name)} without 1, 2, 4, … of them", "together",
         "group_remove", partial(together.draw, setup, target, task, sheet)),
        ("How much induction survives pruning by importance", "left", "trending_down",
         partial(overlap.draw, setup, target, task.name, view.found, frame, since_s, sheet)),
        ("All six scores of every head, as maps and as a table", "maps", "grid_on",
         partial(draw_every_score, frame, sheet)),
        ("What an induction head is, and how it is measured", "about", "help", draw_about),
    ):  # fmt: skip
        folded(label, f"induction_{key}", inside, f":material/{icon}:", in_address=True)


def draw_every_score(frame: pd.DataFrame, sheet: Sheet) -> None:
    """Draws a small map of each score, and the table of all heads."""
    for scores_in_row in (SCORES[:3], SCORES[3:]):
        for score, at in zip(scores_in_row, st.columns(3, gap="medium"), strict=True):
            with at:
                title = charts.TITLES[score]
                st.markdown(f"**{title}**", help=charts.HELP[score])
                drawn = charts.score_map(frame, score)
                chart_with_heads(f"small map {score}", title, drawn, in_words(frame, score), sheet)
                st.caption(induction_scores.ABOUT[score])
    head_table(frame)


def draw_about() -> None:
    """Draws what an induction head is."""
    st.markdown(ABOUT)
    words = "From each second copy of four tokens, an ideal induction head looks at what followed the first copy"
    draw_chart(charts.example_pattern(), "induction_example", words)
