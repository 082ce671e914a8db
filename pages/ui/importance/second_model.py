"""The Importance screen's second model: its maps next to the first's on one scale, and how far both agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.importance.importance import Scores
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.receipts import Measurements
from engine.studies.surveys import StudySettings, Survey, in_words, survey, together
from pages.ui.comparison import pairs
from pages.ui.comparison.second import heading
from pages.ui.controls.many_tasks import FirstMeasured, importance_work, show_failed, so_far, survey_line
from pages.ui.figures.sheet import Sheet
from pages.ui.importance.charts import SHARE
from pages.ui.importance.tables import ORACLE, ORACLE_HEADS
from pages.ui.page.work import live

HELP = (
    "The mean over the tasks that both models have scores of, on one scale of colours. Heads are paired by layer and "
    "number, which says something of two precisions or revisions of one model. Chosen in the sidebar, under “Compare "
    "with”."
)
KINDS = {"heads": "Heads", "ffns": "FFNs"}


@dataclass(frozen=True)
class FirstImportance:
    """The first model as the screen shows it."""

    setting: StudySettings  # of its survey
    target: Target  # the model
    tasks: Sequence[TaskSpec]  # those chosen
    what: str  # the head score
    known: Mapping[str, Survey]  # the results so far, by kind

    def by(self, kind: str) -> str:
        """Returns the score shown of heads or FFNs."""
        return self.what if kind == "heads" else kind

    def measurements(self, second: Target) -> Measurements:
        """What is shown of the second model."""
        setting, name = replace(self.setting, spec=second.spec), second.spec.in_words
        return {f"{KINDS[kind]} of {name}": survey(second, setting, self.tasks, self.by(kind)) for kind in KINDS}


def draw(of: FirstImportance, second: Target, sheet: Sheet, since_s: float) -> Measurements:
    """Draws the section on the second model: what is missing is a button with its cost. Gives what it shows."""
    heading(of.target, second, HELP)
    found = _second_scores(of, second, since_s)
    common = {kind: both_of(of.known[kind], found[kind]) for kind in KINDS}
    if heads := common["heads"]:
        ffns = {"FFNs": means_of(of.setting, common["ffns"])} if common["ffns"] else {}
        look = "Accuracy lost" if of.what == ORACLE else "Mean share", SHARE
        means, draw_next = means_of(of.setting, heads), partial(_draw_agreement, common, sheet)
        pairs.draw_pair((of.target, second), means, "Heads", look, "importance", sheet, draw_next, ffns, by_root=True)
    return of.measurements(second)


def both_of(first: Survey, second: Survey) -> dict[TaskSpec, tuple[Scores, Scores]]:
    """Returns the scores of the tasks that both models have."""
    return {task: (scores, second.scores[task]) for task, scores in first.scores.items() if task in second.scores}


def means_of(setting: StudySettings, common: Mapping[TaskSpec, tuple[Scores, Scores]]) -> list[np.ndarray]:
    """Returns for each model one array of scores for all the tasks, averaged like the screen's mean."""
    return [together(setting, {task: pair[at] for task, pair in common.items()}).scores for at in (0, 1)]


def pairs_of(common: Mapping[TaskSpec, tuple[Scores, Scores]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns the scores of both models by the task's label."""
    return {in_words(task): (first.scores, second.scores) for task, (first, second) in common.items()}


def _second_scores(of: FirstImportance, second: Target, since_s: float) -> dict[str, Survey]:
    """Returns the second model's results by kind, and draws the progress of each or the button that measures it."""
    found: dict[str, Survey] = {}
    setting, n_heads = replace(of.setting, spec=second.spec), second.shape.n_heads_total
    for kind, at in zip(KINDS, st.columns(2, gap="large"), strict=True):
        with at:
            if of.by(kind) == ORACLE and max(n_heads, of.target.shape.n_heads_total) > ORACLE_HEADS:
                found[kind] = Survey()
                st.caption(f"{n_heads:,} heads: removing each is offered up to {ORACLE_HEADS}.")
                continue
            title = f"{KINDS[kind]} of {second.spec.in_words}"
            work = importance_work(setting, second, of.tasks, of.by(kind), f"second {kind}", title)
            found[kind], first = so_far(work), FirstMeasured(f"Measure {title}".replace("Heads", "heads"))
            live(work.watched(), partial(survey_line, work, len(of.tasks), found[kind], since_s, first), since_s)
    show_failed({**found["heads"].failed, **found["ffns"].failed})
    return found


def _draw_agreement(common: Mapping[str, Any], sheet: Sheet, _: pd.DataFrame) -> None:
    """Draws how far the two agree on each task."""
    tables = [pairs.agreed_rows(pairs_of(common[kind])).assign(what=KINDS[kind]) for kind in KINDS if common[kind]]
    rows = sheet.tables["Two models, agreement"] = pd.concat(tables, ignore_index=True)
    shown = rows.assign(of=rows["what"] + ", " + rows["of"])
    pairs.draw_agreed(shown, "Scores of", min(370, 37 + 35 * len(shown)))
