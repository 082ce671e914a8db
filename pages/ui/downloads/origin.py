"""The source of a screen's numbers: the requests that it shows, as a command and as a Python program, and the records
that they are read from.

No streamlit here.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.importance.orders import Pruning
from engine.models.session import Target
from engine.questions.rendering import TaskSpec
from engine.receipts import Measurements
from engine.requests import Request, argv, program


@dataclass(frozen=True)
class Origin:
    """The source of a `screen`: the `requests` that measure its results and their `measurements`; `about`: model,
    precision, task, shots, number of questions, pruning; `notes`: what its numbers rest on, such as the texts of a run,
    as plain text."""

    screen: str
    requests: Sequence[Request]
    measurements: Measurements
    about: str
    notes: Sequence[str] = ()

    @property
    def command(self) -> str:
        """Returns the shell commands, one per line."""
        return "\n".join(map(command_line, self.requests))

    @property
    def python(self) -> str:
        """Returns the Python program."""
        return program(self.requests)


def command_line(request: Request) -> str:
    """Returns the shell command of a request."""
    return shlex.join([executable(), *argv(request)])


def executable() -> str:
    """Returns `headroom` if it is on the PATH, else its path from the working directory: in a clone .venv/bin/."""
    sibling = Path(sys.executable).with_name("headroom")
    if shutil.which("headroom") or not sibling.exists():
        return "headroom"
    return os.path.relpath(sibling) if sibling.is_relative_to(Path.cwd()) else str(sibling)


def of_model(target: Target) -> dict[str, Any]:
    """Returns the fields of a request that name a model."""
    spec, bos = target.spec, target.bos
    return {"model": spec.model, "precision": spec.precision, "int8_threshold": spec.int8_threshold,
            "bos": None if bos == target.identity.default_bos else bos}  # fmt: skip


def of_task(task: TaskSpec) -> dict[str, Any]:
    """Returns the fields of a request that name a task."""
    return {"task": task.name, "shots": task.shots, "same_examples": task.same_examples, "chat": bool(task.chat),
            "labels": task.labels}  # fmt: skip


def of_grid(tasks: Sequence[TaskSpec]) -> dict[str, Any]:
    """Returns the fields of a request that name many tasks, and their shot counts."""
    names, counts = dict.fromkeys(task.name for task in tasks), sorted({task.shots for task in tasks})
    return {"tasks": ",".join(names), "shots": ",".join(map(str, counts))}


def of_pruning(pruning: Pruning) -> dict[str, Any]:
    """Returns the fields of a request that set the pruning."""
    fields: dict[str, Any] = {"mask": pruning.typed.text()}
    if not pruning.by_level:
        return fields
    levels = {f"prune_{axis}": percent(pruning.level(axis)) for axis in ("heads", "ffns", "layers")}
    fields |= {"layer_order": pruning.ranking.layers_by} if pruning.layers_permille else {}
    ranking = pruning.ranking
    return fields | levels | {"order": ranking.name, "order_questions": ranking.n_questions, "seed": ranking.seed}


def percent(permille: int) -> str:
    """Returns a level as it is typed."""
    return f"{permille / 10:g}"


def about(target: Target, *more: str) -> str:
    """Returns a line such as "demo in int8 · demo_outfit, 5 shots · 100 questions"."""
    return " · ".join([f"{target.identity.name} in {target.spec.precision}", *more])


def tasks_in_words(tasks: Sequence[TaskSpec]) -> str:
    """Returns a phrase such as "demo_copy and demo_walk, 0 and 5 shots", or the number of tasks."""
    names, counts = list(dict.fromkeys(task.title for task in tasks)), sorted({task.shots for task in tasks})
    some = " and ".join(names) if len(names) < 4 else f"{len(names)} tasks"
    return f"{some}, {' and '.join(map(str, counts))} shot{'' if counts == [1] else 's'}{tasks[0].manner}"
