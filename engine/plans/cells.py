"""A plan: cells to be measured, as a JSON file that any number of workers read."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from cache.typed_json import MAX_JSON_BYTES, Count, HexId, InvalidFile, Permille, decode_json
from engine.errors import HeadroomError, UsageError
from engine.files import named, read_regular
from engine.importance.importance import WHAT
from engine.questions.requests import TaskSpec
from engine.studies.surveys import StudySettings, in_words
from engine.studies.sweeps import Point, in_levels
from engine.timing.observed_timings import Pass

FORMAT = "headroom plan 1"


@dataclass(frozen=True)
class Group:
    """What many cells share: the setting, the tasks that aggregates are made of (`pool`), and where it was planned the
    fields of every key (`Target.key`)."""

    setting: StudySettings
    pool: tuple[str, ...]
    key: Mapping[str, str | int | bool | None | dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """What one worker measures in one go: for one task either importance (`scores` names it, as in
    engine.importance.importance.WHAT) or the accuracy at `points`.

    Points are several where one follows from another (`rescored`). `needs` are ids of cells that are measured first,
    `cost_s` seconds where it was planned, `characters` read by its passes of `kind`. The `id` is a hash of the
    measurement: the same cell has the same id in all plans.
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
    groups = [asdict(group) for group in plan.groups]
    lines = ",\n ".join(json.dumps(_written_cell(cell)) for cell in plan.cells)
    head = json.dumps({"format": FORMAT, "groups": groups}, indent=1)[:-2]
    return f'{head},\n "cells": [\n {lines}\n ]\n}}\n'.encode()


def read_plan(path: str | Path) -> Plan:
    """The plan in a file; HeadroomError where there is none."""
    file = named(str(path), "plan")
    try:
        found = decode_json(read_regular(file, MAX_JSON_BYTES), _PlanFile, file.name)
        plan = Plan(found.groups, tuple(map(_read_cell, found.cells)))
        _check(plan)
    except OSError as error:
        raise HeadroomError(f"cannot read the plan {file} ({error.strerror}); give the file of sweep --plan") from error
    except (InvalidFile, UsageError) as error:
        raise HeadroomError(
            f"{file} is not a plan of this version ({error}); write it again with sweep --plan"
        ) from error
    return plan


@dataclass(frozen=True)
class _PointFields:
    heads_permille: Permille
    ffns_permille: Permille
    by: str = "own"
    of: str = ""
    seed: Count = 0


@dataclass(frozen=True)
class _CellFields:
    id: HexId
    group: Count
    task: TaskSpec
    needs: tuple[HexId, ...]
    kind: Pass
    characters: float
    cost_s: float
    scores: str = ""
    points: tuple[_PointFields, ...] = ()


@dataclass(frozen=True)
class _PlanFile:
    format: Literal["headroom plan 1"]
    groups: tuple[Group, ...]
    cells: tuple[_CellFields, ...]


def _check(plan: Plan) -> None:
    """UsageError where the parts of a plan do not fit together."""
    for cell in plan.cells:
        if cell.group >= len(plan.groups) or not (cell.scores or cell.points):
            raise UsageError(f"cell {cell.id} is of no group, or measures nothing")
    if not all(isinstance(group.key.get("products", {}), dict) for group in plan.groups):
        raise UsageError("the products of a key are not an object")
    used = {group.setting.heads_by for group in plan.groups} | {group.setting.ffns_by for group in plan.groups}
    if unknown := sorted((used | {cell.scores for cell in plan.cells}) - {*WHAT, ""}):
        raise UsageError(f"importance {unknown[0]!r} is unknown; choose one of {', '.join(WHAT)}")


def _written_cell(cell: Cell) -> dict[str, Any]:
    points = [{name: value for name, value in asdict(point).items() if name != "task"} for point in cell.points]
    about = {"id": cell.id, "group": cell.group, "task": cell.task.fields()}
    about |= {"scores": cell.scores} if cell.scores else {"points": points}
    cost = {"kind": cell.kind, "characters": round(cell.characters), "cost_s": float(f"{cell.cost_s:.4g}")}
    return about | {"needs": list(cell.needs)} | cost


def _read_cell(found: _CellFields) -> Cell:
    points = tuple(Point(found.task, **vars(point)) for point in found.points)
    return Cell(**{**vars(found), "points": points})


def cost_s(cells: Sequence[Cell]) -> float:
    """Seconds that the cells take one after the other, by what was estimated."""
    return sum(cell.cost_s for cell in cells)
