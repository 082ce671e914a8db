"""The Prune screen's panel of a function vector: the accuracy without examples, and with a task's vector added."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import Answers, accuracy, compared, evaluation
from engine.composed import all_of, then
from engine.heads.vector_switch import added_vector
from engine.measurement import Measurement, Workload
from engine.models.added_vector import AddedVector
from engine.models.masks import Mask
from engine.questions.requests import select
from engine.questions.word_pairs import included_tasks
from engine.timing.workload import all_characters, kept_share
from pages.ui.controls.controls import one_listed
from pages.ui.downloads.origin import command_line
from pages.ui.figures.drawing import draw_table
from pages.ui.page.defaults import SAMPLE
from pages.ui.page.runtime import errors_shown, session
from pages.ui.page.tables import percent
from pages.ui.page.work import Work, live
from pages.ui.prune.experiment import Experiment, request
from pages.ui.prune.figure import change_in_words
from pages.ui.prune.jobs import questions_work
from pages.ui.prune.screen import PruneScreen

TITLE, SLOT = "Add a function vector", "prune vector"
TASK, LAYER, BEST = "prune_vector_task", "prune_vector_layer", "best"
TASK_HELP = "Word pairs, such as singular and plural, whose examples make the vector."
LAYER_HELP = "The layer whose input gets the vector. Best: the one that lifts most on train pairs."
HELP = (
    "The questions of this task without examples, under the pruning set above. The vector sums what the top "
    "function-vector heads of the full model output on average after solved examples of the word pairs (Todd et al.), "
    "and is added at the last token before the answer."
)
MEASURE_HELP = "Scores of all heads, the best layer, and the questions twice. In the background."
NAME, WITHOUT, WITH = "With a function vector", "No examples", "No examples, vector added"
TITLES = {"prompt": "Prompt", "acc": "Questions right", "low": "95% from", "high": "to", "n": "Questions"}


@dataclass(frozen=True)
class VectorRun:
    """What is measured with a vector, under one mask.

    name: the task of word pairs
    vector: its function vector
    answers: to the questions without examples, without the vector and with it
    n: how many questions
    """

    name: str
    vector: Measurement[AddedVector]
    answers: Measurement[tuple[Answers | None, ...]]
    n: int

    def found(self) -> tuple[Answers, Answers, int] | None:
        """Returns the stored answers without and with the vector, and its layer; None before all are measured."""
        added, stored = self.vector.stored(session()), self.answers.stored(session())
        if added is None or stored is None or stored[0] is None or stored[1] is None:
            return None
        return stored[0], stored[1], added.layer


def pairs_of(x: Experiment) -> str | None:
    """Returns the name of the word pairs that the task asks, if there are any."""
    tasks = included_tasks(x.target.identity.folder)
    return next((each.name for each in tasks if _words(each.name).endswith(_words(x.task.name))), None)


def vector_run(x: Experiment, mask: Mask, name: str, layer: int | None = None) -> VectorRun | None:
    """Returns what is measured at a layer (None: the best); None while the questions are being rendered."""
    task = replace(x.task, shots=0, labels="true")
    rendered = questions_work("questions without examples", task, x.data_dir, 1).awaited()
    if rendered is None:
        return None
    pairs = next(each for each in included_tasks(x.target.identity.folder) if each.name == name)
    vector, questions = added_vector(x.target, pairs, layer), select(rendered, x.limit, SAMPLE)
    expected = partial(Workload, {"forward": all_characters(questions) * kept_share(mask)})
    added = then(vector, lambda found: evaluation(x.target, questions, mask, added=found), expected, (questions, mask))
    return VectorRun(name, vector, all_of([evaluation(x.target, questions, mask), added]), questions.n)


def draw_vector(screen: PruneScreen) -> dict[str, Measurement[Any]]:
    """Draws the panel; returns its measurement by name, once there is one."""
    shown = screen.shown
    assert shown is not None
    x, mask = shown.x, shown.mask
    names = [task.name for task in included_tasks(x.target.identity.folder)]
    task_at, layer_at = st.columns([5, 3])
    own = names.index(pairs_of(x) or names[0])
    name = one_listed(task_at, "Word pairs", names, TASK, help=TASK_HELP, index=own)
    layers = [BEST, *map(str, range(x.shape.n_layers))]
    layer = one_listed(layer_at, "Layer", layers, LAYER, help=LAYER_HELP)
    at = None if layer == BEST else int(layer)
    with errors_shown():
        run = None if mask is None else vector_run(x, mask, name, at)
        if run is None:
            return {}
        work: Work[tuple[Answers | None, ...]] = Work(SLOT, TITLE, run.answers, priority=2)
        found = run.found()
        ask = partial(work.ask, found is not None, "Measure with the vector", "toggle_on", MEASURE_HELP)
        live([SLOT], ask, screen.since_s)
        if found is not None:
            before, after, _ = found
            words = in_words(name, *found)
            st.markdown("  \n".join(words), help=HELP)
            sides = {WITHOUT: before, WITH: after}
            if x.task.shots and shown.measured.pruned:
                sides["1 example" if x.task.shots == 1 else f"{x.task.shots} examples"] = shown.measured.pruned
            rows = screen.sheet.tables[NAME] = rows_of(sides)
            draw_table(rows, TITLES, words[0], formats={each: percent for each in ("acc", "low", "high")})
            screen.sheet.says += words
        vector_text = name if at is None else f"{name}@{layer}"
        asked = replace(request(x), shots=0, labels="true", add_vector=vector_text)
        st.code(command_line(asked), language="shell", wrap_lines=True)
        return {NAME: run.answers}
    return {}


def rows_of(sides: Mapping[str, Answers]) -> pd.DataFrame:
    """Returns one row per prompt: its accuracy, the 95% interval, and the number of questions."""
    found = {side: accuracy(answers) for side, answers in sides.items()}
    return pd.DataFrame([{"prompt": side, "acc": each.acc, "low": each.ci_low, "high": each.ci_high, "n": each.n}
                         for side, each in found.items()])  # fmt: skip


def in_words(name: str, before: Answers, after: Answers, layer: int) -> list[str]:
    """Returns the accuracy with the vector of `name` at a layer and without, and whether that is a change."""
    both = compared(before, after)
    right, without = (percent(each.acc) for each in (both.second, both.first))
    return [f"With the vector {name}@{layer}: **{right}** right without examples, instead of {without}.",
            *change_in_words(both.change).split("  \n")]  # fmt: skip


def _words(name: str) -> str:
    return name.removeprefix("pairs_").replace("_", " ").replace("-", " ")
