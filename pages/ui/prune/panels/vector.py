"""The Prune screen's panel of a function vector: the accuracy without examples, and with a task's vector added."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import Answers, ModelComparison, accuracy, compared, evaluation
from engine.composed import all_of, then
from engine.heads.vector_switch import added_vector
from engine.measurement import Measurement, Workload
from engine.models.added_vector import AddedVector
from engine.models.masks import Mask
from engine.questions.requests import Questions, select
from engine.questions.word_pairs import included_tasks
from engine.timing.workload import all_characters, kept_share
from pages.ui.controls.controls import one_listed
from pages.ui.downloads.origin import command_line
from pages.ui.figures.drawing import draw_table
from pages.ui.page.defaults import SAMPLE
from pages.ui.page.runtime import errors_shown, session
from pages.ui.page.tables import percent
from pages.ui.page.work import Work, live
from pages.ui.prune.experiment import AnswersSoFar, Experiment, request
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


def with_vector(
    x: Experiment, questions: Questions, mask: Mask, vector: Measurement[AddedVector]
) -> Measurement[tuple[Answers | None, ...]]:
    """Returns the measurement of the answers without and with the vector, both under the mask."""
    expected = partial(Workload, {"forward": all_characters(questions) * kept_share(mask)})
    added = then(vector, lambda found: evaluation(x.target, questions, mask, added=found), expected, (questions, mask))
    return all_of([evaluation(x.target, questions, mask), added])


def draw_vector(screen: PruneScreen) -> dict[str, Measurement[Any]]:
    """Draws the panel; returns its measurement by name, once there is one."""
    shown = screen.shown
    assert shown is not None
    x, mask = shown.x, shown.mask
    tasks = {task.name: task for task in included_tasks(x.target.identity.folder)}
    task_at, layer_at = st.columns([5, 3])
    own = next((at for at, name in enumerate(tasks) if _words(name).endswith(_words(x.task.name))), 0)
    name = one_listed(task_at, "Word pairs", [*tasks], TASK, help=TASK_HELP, index=own)
    layers = [BEST, *map(str, range(x.shape.n_layers))]
    layer = one_listed(layer_at, "Layer", layers, LAYER, help=LAYER_HELP)
    task = replace(x.task, shots=0, labels="true")
    rendered = questions_work("questions without examples", task, x.data_dir, 1).awaited()
    if rendered is None or mask is None:
        return {}
    at = None if layer == BEST else int(layer)
    with errors_shown():
        vector, questions = added_vector(x.target, tasks[name], at), select(rendered, x.limit, SAMPLE)
        wanted = with_vector(x, questions, mask, vector)
        work: Work[tuple[Answers | None, ...]] = Work(SLOT, TITLE, wanted, priority=2)
        found, added = wanted.stored(session()), vector.stored(session())
        is_known = found is not None and added is not None
        live([SLOT], partial(work.ask, is_known, "Measure with the vector", "toggle_on", MEASURE_HELP), screen.since_s)
        if found is not None and added is not None:
            before, after = found
            assert before is not None and after is not None
            words = in_words(compared(before, after), f"{name}@{added.layer}")
            st.markdown("  \n".join(words), help=HELP)
            sides = {WITHOUT: before, WITH: after}
            if x.task.shots and shown.measured.pruned:
                sides["1 example" if x.task.shots == 1 else f"{x.task.shots} examples"] = shown.measured.pruned
            rows = screen.sheet.tables[NAME] = rows_of(sides)
            draw_table(rows, TITLES, words[0], formats={each: percent for each in ("acc", "low", "high")})
            screen.sheet.says += words
    vector_text = name if at is None else f"{name}@{layer}"
    asked = replace(request(x, AnswersSoFar()), shots=0, labels="true", add_vector=vector_text)
    st.code(command_line(asked), language="shell", wrap_lines=True)
    return {NAME: wanted}


def rows_of(sides: Mapping[str, Answers]) -> pd.DataFrame:
    """Returns one row per prompt: its accuracy, the 95% interval, and the number of questions."""
    found = {side: accuracy(answers) for side, answers in sides.items()}
    return pd.DataFrame([{"prompt": side, "acc": each.acc, "low": each.ci_low, "high": each.ci_high, "n": each.n}
                         for side, each in found.items()])  # fmt: skip


def in_words(both: ModelComparison, vector: str) -> list[str]:
    """Returns the accuracy with the vector and without, and whether that is a change."""
    after, before = (percent(each.acc) for each in (both.second, both.first))
    return [f"With the vector {vector}: **{after}** right without examples, instead of {before}.",
            *change_in_words(both.change).split("  \n")]  # fmt: skip


def _words(name: str) -> str:
    return name.removeprefix("pairs_").replace("_", " ").replace("-", " ")
