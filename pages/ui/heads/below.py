"""Below the map and the card: heads alone and together, and what is folded."""

from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from engine.composed import all_of
from engine.heads.induction import InductionScores, induction
from engine.importance.scores import ORACLES
from engine.measurement import Measurement
from engine.models.loading import PRECISIONS, LoadSpec
from engine.requests import AblateHeads, ComparePrecisions, Correlate, Result, ScoreInduction
from engine.studies.surveys import Survey, describe_task, survey
from engine.views.heads import all_scores_part
from engine.views.induction import COLUMNS, both_part, capacity_view
from engine.views.view import MAGNITUDE, Column
from pages.ui.controls.coloring import COST, ESTIMATE, LOST, title_of
from pages.ui.controls.first_views import N_COMPARED
from pages.ui.controls.many_tasks import show_failed, with_others
from pages.ui.downloads.origin import of_grid, of_model, of_task
from pages.ui.figures.sheet import Sheet
from pages.ui.heads.rankings import EVEN
from pages.ui.heads.scores import ScoreReader
from pages.ui.page.defaults import RANKING_QUESTIONS, SAMPLE
from pages.ui.page.screens import draw_headline
from pages.ui.page.tables import plain
from pages.ui.sections.section import Section, draw_part, draw_section

ALONE = "Alone and together"
ALONE_SHOWS = (
    "You will see what the costliest heads cost alone, and the induction heads alone and together, next to as many "
    "random ones."
)
BOTH = "Prefix matching against copying"
BOTH_SHOWS = "You will see both scores of every head."
DISTURBED, DISTURBED_SHOWS = (
    "What lower precision disturbs",
    "You will see whose outputs differ between the two precisions, whether these are the heads that matter, and what "
    "is lost.",
)
KEPT, KEPT_SHOWS = (
    "What pruning keeps of the induction capacity",
    "You will see how fast prefix matching and copying go.",
)
SCORES = "All scores"


def draw_alone(of: ScoreReader, words: str, sheet: Sheet, since_s: float) -> Section:
    """Draws what heads cost alone and together; its finding is the screen's, and the `words` on the map before it is
    measured. Of a model whose heads were not removed one by one, the costliest are chosen by the estimate."""
    is_measured = of.target.spec.is_demo or of.found(COST)[0] is not None
    score = of.whats(COST)[0] if is_measured else EVEN
    request = AblateHeads(
        **of_model(of.target), **of_task(of.task), task_data=of.study.data_dir, score=score,
        limit=RANKING_QUESTIONS,
    )  # fmt: skip
    starts: Any = "at once" if of.target.spec.is_demo else "on request"
    section = Section(ALONE, request, of.target, ALONE_SHOWS, starts, draw=_draw_alone)
    if not section.work.results_so_far():
        draw_headline("heads", words)
    draw_section(section, sheet, since_s)
    return section


def _draw_alone(found: Result, sheet: Sheet) -> None:
    view = found.view
    draw_headline("heads", view.finding)
    sheet.says.insert(0, view.finding)
    for part in view.parts:
        draw_part(part, "heads_alone", view.finding, sheet)
    for note in view.notes:
        st.caption(plain(note))


def draw_folded(of: ScoreReader, sheet: Sheet, since_s: float) -> list[Section]:
    """Draws what is folded; returns its sections that are open."""
    model = of_model(of.target)
    by_induction = ScoreInduction(**of_model(of.target.as_usual), out="induction.csv")
    tasks = tuple(with_others(of.task, of.study, N_COMPARED))
    parts: list[Measurement[Any]] = [induction(of.target), survey(of.target, of.setting, tasks, EVEN)]
    kept = all_of(parts).map(lambda both: None if None in both else both)
    correlates = Correlate(
        **model, **of_grid(tasks), task_data=of.study.data_dir, score=EVEN, induction=True, out="agreement.csv"
    )
    sections = [
        Section(BOTH, by_induction, of.target, BOTH_SHOWS, "if short", True, induction(of.target), _draw_both),
        Section(KEPT, correlates, of.target, KEPT_SHOWS, "if short", True, kept, partial(_draw_kept, of)),
    ]
    if (second := of.study.second) and second.model == of.study.spec.model:
        sections.append(Section(DISTURBED, _precisions(of, second), of.target, DISTURBED_SHOWS, "if short", True))
    return [section for section in sections if draw_section(section, sheet, since_s)]


def _precisions(of: ScoreReader, second: LoadSpec) -> ComparePrecisions:
    """Returns the request that compares the lower precision of the two models with the higher one."""
    lower, higher = sorted((of.study.spec.precision, second.precision), key=PRECISIONS.index)
    model = of_model(of.target) | {"precision": lower, "reference": higher, "also": ""}
    asked: dict[str, Any] = {**of_task(of.task), "task_data": of.study.data_dir, "limit": of.study.limit}
    return ComparePrecisions(**model, **asked, sample=SAMPLE, order_questions=RANKING_QUESTIONS)


def _draw_both(found: InductionScores, sheet: Sheet) -> None:
    draw_part(both_part(found), "heads_both", BOTH, sheet)


def _draw_kept(of: ScoreReader, found: tuple[InductionScores, Survey], sheet: Sheet) -> None:
    scores, known = found
    if of.task not in known.scores:
        show_failed(known.failed)
        return
    view = capacity_view(
        scores, {describe_task(task): each.scores for task, each in known.scores.items()}, describe_task(of.task)
    )
    st.markdown(view.finding)
    sheet.says.append(view.finding)
    for part, at in zip(view.parts, st.columns(len(view.parts), gap="large"), strict=True):
        with at:
            draw_part(part, f"heads_kept {part.title}", view.finding, sheet)


def draw_scores(of: ScoreReader, sheet: Sheet) -> bool:
    """Draws all scores of heads that are known, as a table; returns True."""
    columns = dict[str, tuple[Column, np.ndarray]]()
    for by in (COST, ESTIMATE):
        what = of.whats(by)[0]
        if (found := of.found(by)[0]) is not None:
            is_lost = what in ORACLES
            column = Column(LOST, "+.1f") if is_lost else Column(f"{title_of(what)}, no unit", MAGNITUDE)
            columns[what] = column, 100 * found.scores if is_lost else found.scores
    if (scores := of.induction_scores) is not None:
        columns |= {name: (column, scores.mean[name]) for name, column in COLUMNS.items()}
    if not columns:
        st.caption("No scores are measured yet.")
        return True
    draw_part(all_scores_part(of.target.shape.head_names, columns), "heads_scores", SCORES, sheet)
    return True
