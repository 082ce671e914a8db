"""Where the numbers of a screen come from: the command, the Python program, and the records that they are read from.

No streamlit here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.importance.rankings_of import Evidence, Pruning, evidence
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.receipts import Measurements


@dataclass(frozen=True)
class Origin:
    """Of a `screen`: the shell `command`, one or several lines, and the `python` program that measure what it shows,
    and the `measurements` that it shows; in words what it is of (`about`: model, precision, task, shots, how many
    questions, what is pruned) and what it `says`, in Markdown."""

    screen: str
    command: str
    python: str
    measurements: Measurements
    about: str
    says: Sequence[str] = ()


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
