"""Where the numbers of a screen come from: the requests that it shows, as a command and as a Python program, and the
records that they are read from.

No streamlit here.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.importance.rankings_of import Evidence, Pruning, evidence
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.receipts import Measurements
from engine.requests import Request, argv, program


@dataclass(frozen=True)
class Origin:
    """Of a `screen`: the `requests` that measure what it shows, and the `measurements` that it shows; in words what it
    is of (`about`: model, precision, task, shots, how many questions, what is pruned) and what it `says`, in
    Markdown."""

    screen: str
    requests: Sequence[Request]
    measurements: Measurements
    about: str
    says: Sequence[str] = ()

    @property
    def command(self) -> str:
        """The shell commands, a line each."""
        return "\n".join(map(command_line, self.requests))

    @property
    def python(self) -> str:
        """The Python program."""
        return program(self.requests)


def command_line(request: Request) -> str:
    """The shell command that asks the same."""
    return shlex.join([executable(), *argv(request)])


def executable() -> str:
    """`headroom` where a shell finds it, else the path to it from where the app was started: in a clone .venv/bin/."""
    beside = Path(sys.executable).with_name("headroom")
    if shutil.which("headroom") or not beside.exists():
        return "headroom"
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)


def of_model(target: Target) -> dict[str, Any]:
    """The fields of a request that name a model."""
    spec, bos = target.spec, target.bos
    return {"model": spec.model, "precision": spec.precision, "int8_threshold": spec.int8_threshold,
            "bos": None if bos == target.identity.default_bos else bos}  # fmt: skip


def of_task(task: TaskSpec) -> dict[str, Any]:
    """The fields of a request that name a task."""
    return {"task": task.name, "shots": task.shots, "same_examples": task.same_examples}


def of_grid(tasks: Sequence[TaskSpec]) -> dict[str, Any]:
    """The fields of a request that name many tasks, and their shot counts."""
    names, counts = dict.fromkeys(task.name for task in tasks), sorted({task.shots for task in tasks})
    return {"tasks": ",".join(names), "shots": ",".join(map(str, counts))}


def of_pruning(pruning: Pruning) -> dict[str, Any]:
    """The fields of a request that say what is pruned."""
    fields: dict[str, Any] = {"mask": pruning.typed.text()}
    if not pruning.by_level:
        return fields
    levels = {f"prune_{axis}": percent(pruning.level(axis)) for axis in ("heads", "ffns", "layers")}
    fields |= {"layers_by": pruning.ranking.layers_by} if pruning.layers_permille else {}
    ranking = pruning.ranking
    return fields | levels | {"order": ranking.name, "order_questions": ranking.n_questions, "seed": ranking.seed}


def percent(permille: int) -> str:
    """A level as it is typed."""
    return f"{permille / 10:g}"


def of_second(request: Request, second: Target) -> Request:
    """The same request of the second model of a comparison; what it writes has a name of its own."""
    more = {"out": f"second-{out}"} if (out := getattr(request, "out", None)) else {}
    return replace(request, **of_model(second), **more)


def about(target: Target, *more: str) -> str:
    """Such as "demo in int8 · demo_outfit, 5 shots · 100 questions"."""
    return " · ".join([f"{target.identity.name} in {target.spec.precision}", *more])


def tasks_in_words(tasks: Sequence[TaskSpec]) -> str:
    """Such as "demo_copy and demo_walk, 0 and 5 shots", or how many tasks they are."""
    names, counts = list(dict.fromkeys(task.name for task in tasks)), sorted({task.shots for task in tasks})
    some = " and ".join(Path(name).name for name in names) if len(names) < 4 else f"{len(names)} tasks"
    return f"{some}, {' and '.join(map(str, counts))} shot{'' if counts == [1] else 's'}"


def ranking_part(target: Target, pruning: Pruning, data_dir: str | None) -> Measurements:
    """The scores that the levels of a pruning go by; nothing if they take none."""
    wanted = pruning.missing(Evidence())
    if not wanted:
        return {}
    return {"Ranking": evidence(target, pruning.task, pruning.ranking, wanted, data_dir=data_dir)}
