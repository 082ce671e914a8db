"""A function vector as a switch, on a task's pairs or on a prompt: `SwitchTaskOn`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from engine.errors import UsageError
from engine.heads.vector_prompt import VectorGuesses, guesses_with_vector
from engine.heads.vector_switch import SPLITS, TEST, VectorSwitch, added_vector, switched_on
from engine.measurement import Measurement
from engine.models.added_vector import AddedVector
from engine.models.session import Target
from engine.questions.word_pairs import PairTask, included_tasks, read_pairs
from engine.requests.base import OfModel, RequestRun, Result
from engine.requests.fields import output, path, string
from engine.requests.output import TABLES, file_of, table_file
from engine.views.patches import guesses_view, switch_view


def vector_option(where: str) -> Any:
    """A field for a function vector that is added at the last token of `where`."""
    help = (
        f"task of word pairs whose function vector is added at the last token of {where}, such as singular-plural@9 "
        "for layer 9 (without @LAYER: the layer that lifts most on train pairs)"
    )
    return string(None, help, metavar="TASK@LAYER")


@dataclass(frozen=True, kw_only=True)
class SwitchTaskOn(OfModel):
    """Measure whether a function vector makes the model do a task without examples. The value is a VectorSwitch, or of
    a prompt its VectorGuesses."""

    command: ClassVar[str] = "vector"
    group: ClassVar[str] = "Kinds of heads"
    task: str | None = string(None, "name of a task of word pairs, such as singular-plural (default: the first)")
    pairs: str | None = path(None, "CSV file of word pairs: questions and answers, with titles")
    prompt: str | None = string(None, "a prompt that gets the vector, instead of the task's pairs", what="prompt")
    out: str | None = output(TABLES)

    def measure(self, run: RequestRun) -> Result:
        target = self.target(run.session)
        task = self.task_of(target)
        if self.prompt is not None:
            return self._guesses(run, target, task, self.prompt)
        found = run.value(switched_on(target, task))
        few, zero = (100 * float(right[TEST].mean()) for right in (found.few, found.zero))
        best, lift = found.best_layer, found.lift
        switched = 100 * float(found.switched[TEST][best].mean())
        low, high = (100 * end for end in lift.interval)
        names, n = [target.shape.head_names[at * target.shape.n_heads + head] for at, head in found.heads], lift.n
        fields: dict[str, Any] = {
            "task": task.name, "n": n, "heads": names, "best_layer": best, "zero": zero, "switched": switched,
            "few": few, "lift_points": 100 * lift.difference, "low": low, "high": high, "p": lift.p_mcnemar,
            "by_layer": switch_rows(found), "out": self.out,
        }  # fmt: skip
        files = file_of(self.out, lambda suffix: _file(suffix, switch_rows(found)))
        return Result(found, fields, switch_view(found, switch_rows(found), task.name, names), files)

    def _guesses(self, run: RequestRun, target: Target, task: PairTask, prompt: str) -> Result:
        found = run.value(guesses_with_vector(target, task, prompt))
        names = [target.shape.head_names[at * target.shape.n_heads + head] for at, head in found.heads]
        rows = guess_rows(found)
        fields = {"task": task.name, "heads": names, "guesses": rows, "out": self.out}
        files = file_of(self.out, lambda suffix: _file(suffix, rows))
        return Result(found, fields, guesses_view(rows, task.name, names), files)

    def task_of(self, target: Target) -> PairTask:
        """Returns the task that is named; UsageError if it is none."""
        return _task_of(read_pairs(self.pairs) if self.pairs else included_tasks(target.identity.folder), self.task)


def vector_named(target: Target, text: str) -> Measurement[AddedVector]:
    """Returns the vector that `TASK@LAYER` names, or without @LAYER the one at the layer that lifts most; UsageError:
    there is no such task or layer."""
    name, at, layer = text.rpartition("@") if "@" in text else (text, "", "")
    task, n_layers = _task_of(included_tasks(target.identity.folder), name), target.shape.n_layers
    if at and not (layer.isdecimal() and int(layer) < n_layers):
        raise UsageError(f"layer {layer!r} of the vector {text!r} is not one of 0 to {n_layers - 1}")
    return added_vector(target, task, int(layer) if at else None)


def _task_of(tasks: Iterable[PairTask], name: str | None) -> PairTask:
    """Returns the task with this name, or the first; UsageError if it is none."""
    known = {each.name: each for each in tasks}
    name = name or next(iter(known))
    if name not in known:
        raise UsageError(f"task {name!r} has no word pairs; choose one of {', '.join(known)}")
    return known[name]


def switch_rows(found: VectorSwitch) -> list[dict[str, Any]]:
    """Returns one row per layer and split: the share of right answers with the vector added there."""
    return [{"layer": layer, "split": split, "acc": float(np.mean(right))}
            for split in SPLITS for layer, right in enumerate(found.switched[split])]  # fmt: skip


def guess_rows(found: VectorGuesses) -> list[dict[str, Any]]:
    """Returns one row without the vector (layer None), and one per layer that gets it: the likeliest next token."""
    guesses = [found.likeliest(row) for row in range(len(found.p))]
    return [{"layer": at - 1 if at else None, "token": token, "p": p} for at, (token, p) in enumerate(guesses)]


def _file(suffix: str, rows: list[dict[str, Any]]) -> bytes:
    import pandas as pd

    return table_file(suffix, pd.DataFrame(rows))
