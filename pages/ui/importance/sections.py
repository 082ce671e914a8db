"""The sections of the Importance screen: heads by task, the most important, FFNs by task, gradients and the oracle."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pandas as pd
import streamlit as st

from engine.importance.importance import Scores
from engine.importance.rankings import agreement
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.studies.surveys import StudySettings, Survey, in_words, together
from engine.timing.observed_timings import together_s
from pages.ui.controls.heads import MOST, open_heads
from pages.ui.controls.many_tasks import MEAN_HELP, MEANS, importance_work, so_far
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.importance import charts, tables
from pages.ui.importance.divisors import EVEN, draw_line
from pages.ui.importance.tables import ORACLE, ORACLE_HEADS
from pages.ui.page.defaults import IN_SHORT
from pages.ui.page.defaults import RANKING_QUESTIONS as N
from pages.ui.page.tables import for_file, magnitude, share
from pages.ui.page.work import Work, cost_in_words, live

COMPARED = (EVEN, "gate", ORACLE)
TOO_MANY = f"{{:,}} heads: the oracle takes {N} questions for each, and is offered up to {ORACLE_HEADS} heads."
MAPS_HELP = "A head's score as a share of the sum over all heads. Layer 0, next to the tokens, is the top row."
FFNS_HELP = f"Accuracy lost without each; one of {N} questions is {100 / N:.1f} points."
ORACLE_HELP = (
    "One dot per head. Oracle: accuracy lost when just that head is pruned, the direct measurement that gradients "
    "approximate. SRCC: Spearman's rank correlation over the heads."
)
RANK_COLUMN = st.column_config.Column("Rank", width=60)


@dataclass(frozen=True)
class HeadMaps:
    """The head scores of a screen, and how they are drawn."""

    target: Target  # the model
    setting: StudySettings  # of the survey, with the mean over tasks
    scores: Mapping[TaskSpec, Scores]  # measured so far
    front: TaskSpec  # the highlighted task
    what: str  # the head score

    @cached_property
    def mean(self) -> pd.DataFrame:
        """One row per head, by the mean over tasks."""
        return tables.aggregate_rows(self.scores, together(self.setting, self.scores))


def draw_heads(of: HeadMaps, sheet: Sheet) -> list[str]:
    """Draws a map of each task; returns the finding, [] without scores."""
    if not of.scores:
        return []
    n_maps, n_heads, how = len(of.scores), of.target.shape.n_heads_total, of.setting.aggregate
    rows, mean = tables.head_rows(of.scores), of.mean
    sheet.tables |= {"Head importance": for_file(rows), "Mean head importance": for_file(mean)}
    words = tables.heads_in_words(mean, n_maps, how)
    st.subheader(f"Heads by task :small[heads {IN_SHORT['heads']}]", help=MAPS_HELP)
    sheet.says += draw_line(of.what, of.target, of.setting, of.scores)
    shown = tables.shown_maps(list(of.scores), of.front, n_heads)
    if len(shown) < n_maps:
        help = f"Of {n_heads:,} heads each, from the highlighted task on. The downloads hold all."
        st.caption(f"{len(shown)} of {n_maps} maps are drawn.", help=help)
        rows = tables.head_rows({task: of.scores[task] for task in shown})
    sheet.draw("Heads by task", charts.score_maps(rows, charts.TITLES[of.what]), "importance_maps", words)
    return [words]


def draw_best(of: HeadMaps) -> None:
    """Draws the heads that are most important in the mean, with their rank on each task."""
    n_maps, how = len(of.scores), of.setting.aggregate
    st.subheader("Most important heads", help=f"Rank 1 is the most important. Ranks go by the mean. {MEAN_HELP}")
    best = tables.best_rows(of.scores, of.mean)
    ranks = {name: f"Rank in {name}" for name in best.columns if name in map(in_words, of.scores)}
    titles: dict[str, Any] = {"rank": RANK_COLUMN, "name": "Head", "score": f"Mean {MEANS[how]}", **ranks}
    titles |= {"kept": f"In top 30% of {n_maps}"} if n_maps > 1 else {}
    write = share if how == "shares" else magnitude
    words = tables.heads_in_words(of.mean, n_maps, how)
    draw_table(best, titles, words, st.container(), {"score": write}, height="content")
    open_heads(best["name"].tolist()[:MOST], st.container())


def draw_ffns(scores: Mapping[TaskSpec, Scores], sheet: Sheet) -> list[str]:
    """Draws the accuracy lost without each FFN, by task; returns the finding, [] without scores."""
    if not scores:
        return []
    rows = tables.ffn_rows(scores)
    sheet.tables["FFN importance"] = for_file(rows)
    st.subheader("FFNs by task :small[feed-forward networks, one a layer, " + IN_SHORT["ffns"] + "]", help=FFNS_HELP)
    sheet.says.append(words := tables.ffns_in_words(rows))
    st.caption(words)
    sheet.draw("FFNs by task", charts.ffn_map(rows), "importance_ffns", words)
    return [tables.top_ffn_in_words(rows)]


def draw_oracle(setting: StudySettings, target: Target, front: TaskSpec, sheet: Sheet, since_s: float) -> None:
    """Draws the two gradient scores of a task next to the oracle, or the button that measures what is missing; nothing
    for a model with too many heads."""
    if (n_heads := target.shape.n_heads_total) > ORACLE_HEADS:
        return
    st.subheader(f"Gradient and oracle: {in_words(front)}", help=ORACLE_HELP)
    named = {by: charts.TITLES[by] for by in COMPARED}
    three = {by: importance_work(setting, target, [front], by, f"agreement {by}", name) for by, name in named.items()}
    known = {by: so_far(work).scores.get(front) for by, work in three.items()}
    missing = [work for by, work in three.items() if known[by] is None]
    slots = [slot for work in three.values() for slot in work.watched()]
    live(slots, partial(_oracle_line, missing, n_heads), since_s)
    if missing:
        return
    both = {by: found.scores for by, found in known.items() if found is not None}
    rows, agreed = tables.scatter_rows(both), agreement(both)
    sheet.tables["Gradient and oracle"] = rows
    for by, at in zip((EVEN, "gate"), st.columns(2, gap="large"), strict=True):
        name = f"{charts.TITLES[by]} and oracle"
        at.markdown(words := tables.agreement_in_words(agreed, by, ORACLE))
        drawn = charts.agreement_scatter(rows, by)
        sheet.draw(name, drawn, f"importance agreement {by}", f"{name}: {words}", at)


def _oracle_line(missing: list[Work[Survey]], n_heads: int) -> None:
    """Draws the progress of the comparison with the oracle, or the button that starts it."""
    help = f"Measures the missing scores: at most {n_heads + 1} evaluations of {N} train questions, and two gradients."
    if any([work.line() for work in missing]) or not missing:
        return
    label = f"Compare with the oracle{cost_in_words(together_s([work.takes_s() for work in missing]), 0.0)}"

    def start() -> None:
        for work in missing:
            work.restart()

    if st.button(label, icon=":material/balance:", help=help, key="compare", on_click=start):
        st.rerun()
