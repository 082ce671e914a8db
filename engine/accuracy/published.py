"""Published values, and whether a number measured here agrees with them.

The table, with its sources, is next to this module. A model is identified only by its hub id and revision: the name of
a folder does not identify its contents.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

import numpy as np

from engine.accuracy.evaluation import Answers, accuracy
from engine.checkpoints.names import model_name
from engine.errors import HeadroomError
from engine.files import read_regular
from engine.models.loading import LoadSpec
from engine.questions.rendering import TaskSpec

TABLE = Path(__file__).with_name("published.csv")
COLUMNS = ("model", "revision", "task", "shots", "bos", "metric", "value", "stderr")
METRICS = ("acc", "acc_norm", "perplexity")
OTHER_DRAWS = "harness-0.3"  # it drew other few-shot examples than the current harness
POINTS = {"int8": 1.5}  # allowed difference of an accuracy, 0.6 in other precisions
PERCENT = {"int8": 5.0}  # allowed difference of a perplexity, 2 in other precisions
N_STANDARD_ERRORS = 3.0
WHOLE = 0.75  # share of the published questions that counts as all, because their number is known only approximately


@dataclass(frozen=True)
class Published:
    """One published value.

    source: where it was published
    model, revision: hub id and revision
    task, shots: what was measured
    bos: whether BOS came first
    metric: acc, acc_norm or perplexity
    value: 0-1 for accuracies
    stderr: nan if not reported
    """

    source: str
    model: str
    revision: str
    task: str
    shots: int
    bos: bool
    metric: str
    value: float
    stderr: float

    @property
    def n(self) -> float:
        """The approximate number of questions of an accuracy, from its standard error; nan if that is unknown."""
        if self.metric == "perplexity" or not self.stderr > 0:
            return math.nan
        return self.value * (1 - self.value) / self.stderr**2 + 1

    @property
    def has_other_examples(self) -> bool:
        """Whether its few-shot examples differ from those drawn here; it then gives only a range."""
        return self.shots > 0 and self.source == OTHER_DRAWS


@dataclass(frozen=True)
class PublishedComparison:
    """A published value and `ours`, from n questions. `difference` and the `allowed` difference are in points of an
    accuracy, in percent of a perplexity."""

    published: Published
    ours: float
    n: int
    difference: float
    allowed: float

    @property
    def verdict(self) -> str:
        """agrees, differs, or "range only" if it cannot be judged."""
        if self.published.has_other_examples:
            return "range only"
        return "agrees" if round(abs(self.difference), 6) <= self.allowed else "differs"


@once
def built_in() -> tuple[Published, ...]:
    """Returns the table included in the app."""
    return read_table(TABLE)


def read_table(file: Path) -> tuple[Published, ...]:
    """Reads a CSV table with the columns of COLUMNS; lines that begin with # are comments. HeadroomError: names the row
    that cannot be read."""
    try:
        lines = read_regular(file).decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise HeadroomError(f"the table {file} cannot be read ({error}); give a CSV file in UTF-8") from error
    content = [line for line in lines if line.strip() and not line.startswith("#")]
    try:
        rows = list(csv.DictReader(content, strict=True))
    except csv.Error as error:
        columns = ", ".join(COLUMNS)
        raise HeadroomError(f"the table {file} is not valid CSV ({error}); give the columns {columns}") from error
    missing = [name for name in COLUMNS if not rows or name not in rows[0]]
    if missing:
        raise HeadroomError(f"the table {file} has no {missing[0]!r} or no rows; give the columns {', '.join(COLUMNS)}")
    return tuple(_row(file, number, row) for number, row in enumerate(rows, start=1))


def published_for(spec: LoadSpec, rows: Iterable[Published] | None = None) -> list[Published]:
    """Returns the rows of a model, by its hub id and revision (`main` is the default)."""
    try:
        name = model_name(spec.model)
    except HeadroomError:  # no such folder, or not a name: not in any table
        return []
    revision = "" if name.revision == "main" else name.revision
    rows = built_in() if rows is None else rows
    return [row for row in rows if row.model == (name.repo or str(name)) and row.revision == revision]


def published_value(spec: LoadSpec, task: TaskSpec, bos: bool, metric: str = "acc") -> Published | None:
    """Returns the published value of a model for a task, preferably with the same BOS setting, or None if no value is
    comparable."""
    if task.split != "validation" or task.manner or (task.same_examples and task.shots):
        return None
    wanted = (task.name, task.shots, metric)
    found = [row for row in published_for(spec) if (row.task, row.shots, row.metric) == wanted]
    return min(found, key=lambda row: row.bos != bos, default=None)


def compare(row: Published, answers: Answers, precision: str, n_all: float) -> PublishedComparison:
    """Compares a published value, measured on `n_all` questions, with that of `answers` to some or all of the task's
    questions.

    The allowed difference is POINTS or PERCENT, plus N_STANDARD_ERRORS standard errors of sampling if fewer questions
    were answered.
    """
    found, n = accuracy(answers), len(answers)
    left = 1 - n / n_all if n < WHOLE * n_all else 0.0
    if row.metric == "perplexity":
        ours = found.perplexity
        error = N_STANDARD_ERRORS * float(np.std(answers.gold_log_likelihood_nats)) * math.sqrt(left / n)
        allowed = PERCENT.get(precision, 2.0) + 100 * math.expm1(min(error, 100.0))
        return PublishedComparison(row, ours, n, 100 * (ours / row.value - 1), allowed)
    ours = found.acc if row.metric == "acc" else found.acc_norm
    error = N_STANDARD_ERRORS * math.sqrt(row.value * (1 - row.value) * left / n)
    return PublishedComparison(row, ours, n, 100 * (ours - row.value), POINTS.get(precision, 0.6) + 100 * error)


def n_published(rows: Sequence[Published], n_here: int) -> float:
    """Returns how many questions the rows of one task were measured on, by their standard errors, or `n_here` if
    unknown."""
    return next((row.n for row in rows if row.n == row.n), float(n_here))


def _row(file: Path, number: int, row: dict[str, str]) -> Published:
    def wrong(name: str, wanted: str) -> HeadroomError:
        return HeadroomError(f"the table {file}, row {number}: {name} is {row.get(name)!r}, must be {wanted}")

    text = {name: (row.get(name) or "").strip() for name in ("source", *COLUMNS)}
    if text["metric"] not in METRICS:
        raise wrong("metric", f"one of {', '.join(METRICS)}")
    if text["bos"] not in ("yes", "no"):
        raise wrong("bos", "yes or no")
    try:
        shots = int(text["shots"])
    except ValueError as error:
        raise wrong("shots", "a whole number") from error
    numbers = {}
    for name in ("value", "stderr"):
        try:
            numbers[name] = float(text[name] or "nan") if name == "stderr" else float(text[name])
        except ValueError as error:
            raise wrong(name, "a number") from error
    most = math.inf if text["metric"] == "perplexity" else 1.0
    if not 0 <= numbers["value"] <= most or (most == math.inf and not 0 < numbers["value"] < math.inf):
        raise wrong("value", "an accuracy from 0 to 1, or a perplexity above 0")
    named = {name: text[name] for name in ("source", "model", "revision", "task", "metric")}
    return Published(**named, shots=shots, bos=text["bos"] == "yes", **numbers)
