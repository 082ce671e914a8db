"""A plan: cells to be measured, as a JSON file that any number of workers read."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from engine.errors import HeadroomError
from engine.files import named, read_regular
from engine.models.loading import LoadSpec
from engine.models.rates import Pass
from engine.questions.requests import TaskSpec
from engine.studies.surveys import Setting, in_words
from engine.studies.sweeps import Point, in_levels

FORMAT = "headroom plan 1"


@dataclass(frozen=True)
class Group:
    """What many cells share: the setting, the tasks that aggregates are made of (`pool`), and where it was planned the
    fields of every key (`Subject.key`)."""

    setting: Setting
    pool: tuple[str, ...]
    key: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """What one worker measures in one go: for one task either importance (`scores` names it, as in
    engine.importance.importance.WHAT) or the accuracy at `points`.

    Points are several where one follows from another (`rescored`). `needs` are ids of cells that are measured first,
    `cost_s` seconds where it was planned, `characters` what is read for it by passes of `kind`. The `id` is made of
    what is measured: the same cell in two plans has the same.
    """

    id: str
    group: int
    task: TaskSpec
    scores: str = ""
    points: tuple[Point, ...] = ()
    needs: tuple[str, ...] = ()
    kind: Pass = "forward"
    characters: float = 0.0
    cost_s: float = 0.0

    def __str__(self) -> str:
        """Such as "piqa, 0 shots: importance (heads)"."""
        if self.scores:
            return f"{in_words(self.task)}: importance ({self.scores})"
        first, *more = self.points
        return f"{in_words(self.task)}: {1 + len(more)} levels, {first.by}" if more else in_levels(first)


@dataclass(frozen=True)
class Plan:
    """Cells in the order in which one worker alone would measure them, and their groups."""

    groups: tuple[Group, ...] = ()
    cells: tuple[Cell, ...] = ()

    def __add__(self, other: "Plan") -> "Plan":
        """Both together; a cell that both have is there once."""
        groups = list(self.groups)
        places = []
        for group in other.groups:
            if group not in groups:
                groups.append(group)
            places.append(groups.index(group))
        known = {cell.id for cell in self.cells}
        more = (replace(cell, group=places[cell.group]) for cell in other.cells if cell.id not in known)
        return Plan(tuple(groups), (*self.cells, *more))

    @cached_property
    def models(self) -> list[int]:
        """By group the first group of the same model: those of one number are served by one that is loaded."""
        specs = [group.setting.spec for group in self.groups]
        return [specs.index(spec) for spec in specs]


def cell_id(*parts: Any) -> str:
    """The id of what the parts (plain values) say."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).hexdigest()


def written(plan: Plan) -> bytes:
    """The plan as a JSON file, one line a cell."""
    groups = [{**asdict(group), "key": dict(group.key)} for group in plan.groups]
    lines = ",\n ".join(json.dumps(_written_cell(cell)) for cell in plan.cells)
    head = json.dumps({"format": FORMAT, "groups": groups}, indent=1)[:-2]
    return f'{head},\n "cells": [\n {lines}\n ]\n}}\n'.encode()


def read_plan(path: str | Path) -> Plan:
    """The plan in a file; HeadroomError where there is none."""
    file = named(str(path), "plan")
    try:
        content = json.loads(read_regular(file))
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {FORMAT!r}")
        groups = tuple(map(_read_group, content["groups"]))
        plan = Plan(groups, tuple(map(_read_cell, content["cells"])))
        if not all(0 <= cell.group < len(groups) and (cell.scores or cell.points) for cell in plan.cells):
            raise ValueError("a cell is of no group, or measures nothing")
    except OSError as error:
        raise HeadroomError(f"cannot read the plan {file} ({error.strerror}); give the file of sweep --plan") from error
    except HeadroomError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise HeadroomError(f"{file} is no plan of this version ({why}); write it anew with sweep --plan") from error
    return plan


def _written_cell(cell: Cell) -> dict[str, Any]:
    points = [{name: value for name, value in asdict(point).items() if name != "task"} for point in cell.points]
    about = {"id": cell.id, "group": cell.group, "task": asdict(cell.task)}
    about |= {"scores": cell.scores} if cell.scores else {"points": points}
    cost = {"kind": cell.kind, "characters": round(cell.characters), "cost_s": float(f"{cell.cost_s:.4g}")}
    return about | {"needs": list(cell.needs)} | cost


def _read_cell(told: Mapping[str, Any]) -> Cell:
    task = TaskSpec(**told["task"])
    points = tuple(Point(task, **point) for point in told.get("points", ()))
    cost = {name: told[name] for name in ("kind", "characters", "cost_s")}
    return Cell(told["id"], told["group"], task, told.get("scores", ""), points, tuple(told["needs"]), **cost)


def _read_group(told: Mapping[str, Any]) -> Group:
    setting = dict(told["setting"])
    spec = LoadSpec(**setting.pop("spec"))
    return Group(Setting(spec, **setting), tuple(told["pool"]), told["key"])


def cost_s(cells: Sequence[Cell]) -> float:
    """Seconds that the cells take one after the other, by what was estimated."""
    return sum(cell.cost_s for cell in cells)
