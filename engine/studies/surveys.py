"""Importance of every head or FFN for many tasks and shot counts, and how much rankings agree: of tasks, and of shot
counts.

A task that cannot be measured (its rows are missing or invalid) is listed with the reason; the others continue.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from cache import Store
from cache.typed_json import Positive
from engine.composed import Gathered, every
from engine.importance.criteria import passes
from engine.importance.rankings import aggregate, agreement, agreement_within_layers, random_order
from engine.importance.scores import GRADIENTS, Scores, importance
from engine.measurement import Measurement
from engine.models.loading import LoadSpec
from engine.models.session import Session, Target
from engine.questions.rendering import CHUNK, Questions, TaskSpec, render_questions, select
from engine.shapes import ModelShape

AGGREGATE, RANDOM = "aggregate", "random"  # rankings besides those of tasks
MANY_QUESTIONS = 200  # stands for all questions of a task, in forecasts


@dataclass(frozen=True)
class SurveySettings:
    """The settings that measurements over many tasks share. Questions are taken in the stratified order.

    spec: the model
    bos: whether BOS comes first (None = the model's default)
    data_dir: folder of the tasks' rows
    n_questions: questions of the validation split for accuracy (None = all)
    n_ranking: questions of the train split for importance (None = all)
    heads_by, ffns_by: the score used as importance
    aggregate: how tasks are combined (engine.importance.rankings.AGGREGATES)
    """

    spec: LoadSpec
    bos: bool | None = None
    data_dir: str | None = None
    n_questions: Positive | None = None
    n_ranking: Positive | None = None
    heads_by: str = "heads"
    ffns_by: str = "ffns"
    aggregate: str = "scores"

    @property
    def n_validation(self) -> int:
        """About how many questions measure the accuracy of a task."""
        return self.n_questions or MANY_QUESTIONS

    def validation_questions(self, task: TaskSpec, store: Store) -> Questions:
        """Returns the questions for accuracy."""
        rendered = render_questions(replace(task, split="validation"), self.data_dir, store)
        return select(rendered, self.n_questions, "stratified")

    def train_questions(self, task: TaskSpec, store: Store) -> Questions:
        """Returns the questions for importance."""
        rendered = render_questions(replace(task, split="train"), self.data_dir, store)
        return select(rendered, self.n_ranking, "stratified")

    def cost(self, shape: ModelShape, what: str) -> int:
        """Returns about how many forward passes importance of one task takes."""
        return passes(what, shape) * (self.n_ranking or MANY_QUESTIONS)


@dataclass(frozen=True)
class Survey:
    """Importance by task.

    scores: of the tasks that are measured
    failed: a one-line reason for each task that could not be measured
    begun: of the other tasks, over their first questions
    """

    scores: Mapping[TaskSpec, Scores] = field(default_factory=dict)
    failed: Mapping[TaskSpec, str] = field(default_factory=dict)
    begun: Mapping[TaskSpec, Scores] = field(default_factory=dict)

    @property
    def n_known(self) -> int:
        """How many tasks have a result, an error included."""
        return len(self.scores) + len(self.failed)

    def preview(self, tasks: Sequence[TaskSpec]) -> dict[TaskSpec, Scores]:
        """Returns scores in the order of `tasks`, of those that are not measured yet over their first questions."""
        known = {**self.begun, **self.scores}
        return {task: known[task] for task in tasks if task in known}

    def at(self, shots: int) -> dict[str, np.ndarray]:
        """Returns scores by task name, of one shot count."""
        return {task.name: found.scores for task, found in self.scores.items() if task.shots == shots}


def grid(names: Sequence[str], shots: Sequence[int], labels: str = "true") -> list[TaskSpec]:
    """Returns every task at every shot count, grouped by task."""
    return [TaskSpec(name, count, labels=labels) for name in names for count in shots]


_TaskPart = tuple[TaskSpec, int | None]  # a task, and how many of its questions


def survey(target: Target, setting: SurveySettings, tasks: Sequence[TaskSpec], what: str) -> Measurement[Survey]:
    """Returns the Survey of one score over tasks. Progress counts approximate forward passes.

    Gradients over the first questions of every task come first, so that all tasks soon have a preview.
    """

    def scores(part: _TaskPart, session: Session) -> Measurement[Scores]:
        task, n = part
        return importance(target, replace(setting, n_ranking=n).train_questions(task, session.store), what)

    def label(part: _TaskPart) -> str:
        return f"{'FFN' if what.startswith('ffns') else 'head'} importance, {describe_task(part[0])}"

    n, cost = setting.n_ranking, setting.cost(target.shape, what)
    sizes = {n: cost}
    if what in GRADIENTS and (n or MANY_QUESTIONS) > CHUNK:
        first = cost * CHUNK // (n or MANY_QUESTIONS)
        sizes = {CHUNK: first, n: cost - first}
    parts = {(task, count): partial(scores, (task, count)) for count in sizes for task in tasks}
    every_task = every(target, ("survey", setting, what, *tasks), parts, lambda part: sizes[part[1]], label)

    def surveyed(gathered: Gathered[_TaskPart, Scores]) -> Survey:
        values = {task: each for (task, count), each in gathered.values.items() if count == n}
        begun = {
            task: each for (task, _), each in {**gathered.values, **gathered.partial}.items() if task not in values
        }
        return Survey(values, {task: reason for (task, _), reason in gathered.failed.items()}, begun)

    return every_task.map(surveyed)


def together(setting: SurveySettings, scores: Mapping[TaskSpec, Scores]) -> Scores:
    """Returns the aggregate of several tasks' scores; equals are ordered by the mean of their tie breaks."""
    named = {f"{task.name} {task.shots}": found for task, found in scores.items()}
    combined = aggregate({name: found.scores for name, found in named.items()}, setting.aggregate)
    breaks = [found.tie_break for found in named.values() if found.tie_break is not None]
    tie_break = np.mean(breaks, axis=0) if len(breaks) == len(named) else None
    flips = [found.flips for found in named.values() if found.flips is not None]
    first, n = next(iter(named.values())), sum(found.n for found in named.values())
    summed = np.sum(flips, axis=0) if len(flips) == len(named) else None
    return Scores(first.what, n, combined, tie_break, flips=summed)


def agreement_rows(
    found: Survey, how: str, others: Mapping[str, np.ndarray] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Returns one row for every two rankings `a` and `b`, each a TaskSpec: of two tasks at one shot count (`kind`
    tasks), with their aggregate, a random one and `others` by name, such as induction scores; and of two shot counts of
    one task (`kind` shots)."""
    rows: list[dict[str, Any]] = []

    def add(kind: str, scores: dict[TaskSpec, np.ndarray]) -> None:
        if len(scores) < 2:
            return
        named = {str(number): each for number, each in enumerate(scores.values())}
        pairs, of, within = agreement(named), list(scores), agreement_within_layers(named)
        for i, j in zip(*np.triu_indices(len(scores), 1), strict=True):
            values = {name: float(getattr(pairs, name)[i, j]) for name in ("srcc", "low", "high", "p", "overlap")}
            rows.append({"kind": kind, "a": of[i], "b": of[j], **values, "within": float(within[i, j])})

    for shots in sorted({task.shots for task in found.scores}):
        scores = found.at(shots)
        first = next(iter(scores.values()))
        random = random_order(first.size).reshape(first.shape).astype(float)
        named = scores | dict(others) | {AGGREGATE: aggregate(scores, how), RANDOM: random}
        add("tasks", {TaskSpec(name, shots): each for name, each in named.items()})
    for name in dict.fromkeys(task.name for task in found.scores):
        add("shots", {task: each.scores for task, each in found.scores.items() if task.name == name})
    return rows


def mean_correlation(rows: Sequence[Mapping[str, Any]], shots: int, others: Collection[str] = ()) -> float | None:
    """Returns the mean coefficient of two tasks at a shot count, of rows of `agreement_rows` with these `others`; None
    without any."""
    aside = {AGGREGATE, RANDOM, *others}
    found = [
        row["srcc"]
        for row in rows
        if row["kind"] == "tasks" and row["a"].shots == shots and not {row["a"].name, row["b"].name} & aside
    ]
    kept = [value for value in found if not math.isnan(value)]
    return sum(kept) / len(kept) if kept else None


def written_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a row of `agreement_rows` to its form in files: `at` is common to both rankings, `a` and `b` differ."""
    a, b, rest = row["a"], row["b"], {name: value for name, value in row.items() if name not in ("kind", "a", "b")}
    if row["kind"] == "tasks":
        sides = {"at": str(a.shots), "a": a.name, "b": b.name}
    else:
        sides = {"at": a.name, "a": shots_in_words(a.shots), "b": shots_in_words(b.shots)}
    return {"kind": row["kind"], **sides, **rest}


def describe_task(task: TaskSpec) -> str:
    """Returns a text such as "piqa, 5 shots"."""
    return f"{task.name}, {shots_in_words(task.shots)}{task.manner}"


def shots_in_words(count: int) -> str:
    """Returns a text such as "5 shots"."""
    return f"{count} shot{'' if count == 1 else 's'}"
