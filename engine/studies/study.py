"""The first paper's whole study of one model: importance of every task, curves, grid, transfer, and which of the
paper's statements hold for it (Bansal et al. 2212.09095).
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from engine.accuracy.evaluation import numbers_key
from engine.importance.rankings import Agreement, agreement, n_pruned
from engine.jobs import Progress
from engine.models.loading import Models, identify
from engine.questions.requests import TaskSpec
from engine.studies.break_points import break_points
from engine.studies.surveys import Setting, Survey, agreement_rows, survey
from engine.studies.sweeps import Point, Row, Swept, points, sweep

TENTHS = range(0, 1001, 100)
GRID_FFNS = range(0, 501, 100)
RANDOM_LEVELS, RANDOM_SEEDS = range(200, 1000, 200), range(3)
TRANSFER_PERMILLE = 500
N_RESCORED = 3  # tasks whose curve is also measured with importance anew at every step
OUT_OF_DISTRIBUTION = ("mathqa", "lambada_openai", "demo_price", "demo_cloze")  # never part of an aggregate
COMBINED = ((0, 700, 200, 5), (1, 700, 100, 6), (5, 600, 200, 4))  # shots, permille of heads and FFNs, points lost
SMALL_LOSS = 5  # points: what "less than 5 points lost" and "little" mean here


@dataclass(frozen=True)
class Statement:
    """What the paper found, what this model shows, and whether it `holds`, `does not hold` or is `not measured`."""

    text: str
    ours: str
    verdict: str


@dataclass(frozen=True)
class Study:
    """Everything measured. `curves` by name: heads, ffns, random, combined, transfer, others, rescored."""

    tasks: tuple[TaskSpec, ...]
    setting: Setting
    heads: Survey = field(default_factory=Survey)
    ffns: Survey = field(default_factory=Survey)
    curves: Mapping[str, Swept] = field(default_factory=dict)
    receipt: Mapping[str, Any] = field(default_factory=dict)
    n_layers: int = 0

    @property
    def shots(self) -> list[int]:
        return sorted({task.shots for task in self.tasks})

    @property
    def failed(self) -> dict[TaskSpec, str]:
        """Tasks that could not be measured, and why."""
        found = dict(self.heads.failed) | dict(self.ffns.failed)
        for swept in self.curves.values():
            found |= swept.failed
        return found

    @cached_property
    def statements(self) -> list[Statement]:
        return statements(self)

    @cached_property
    def correlations(self) -> list[dict[str, Any]]:
        """Rows of every two rankings of heads (engine.studies.surveys.agreement_rows)."""
        return agreement_rows(self.heads, self.setting.aggregate)

    def cross_task(self, shots: int) -> Agreement | None:
        """SRCC of every two tasks' head importance, without p; None with fewer than two."""
        scores = self.heads.at(shots)
        return agreement(scores, permutations=0) if len(scores) > 1 else None

    def cross_shot(self) -> dict[str, Agreement]:
        """SRCC of every two shot counts' head importance, without p, by task."""
        found = {}
        for name in dict.fromkeys(task.name for task in self.tasks):
            mine = {str(task.shots): each.scores for task, each in self.heads.scores.items() if task.name == name}
            if len(mine) > 1:
                found[name] = agreement(mine, permutations=0)
        return found


def pool_of(names: Sequence[str]) -> list[str]:
    """The tasks that aggregates are made of: those that are not kept out of distribution, or all where no other is."""
    return [name for name in names if name not in OUT_OF_DISTRIBUTION] or list(names)


def random_points(tasks: Sequence[TaskSpec], heads: Sequence[int], ffns: Sequence[int]) -> list[Point]:
    """The points behind a band of random rankings."""
    return [point for seed in RANDOM_SEEDS for point in points(tasks, heads, ffns, "random", seed=seed)]


def transfer_points(tasks: Sequence[TaskSpec], permille: int) -> list[Point]:
    """Each task pruned by each one's ranking, and by the aggregate."""
    names = dict.fromkeys(task.name for task in tasks)
    by_each = [point for name in names for point in points(tasks, [permille], [0], "task", name)]
    return [*by_each, *points(tasks, [permille], [0], "aggregate")]


def paper_study(
    models: Models, setting: Setting, tasks: Sequence[TaskSpec], store: Any, compute: bool = True
) -> Iterator[Progress]:
    """Yields Progress, its value the Study so far; what is stored is not computed again."""
    identity = identify(setting.spec, store)
    names = list(dict.fromkeys(task.name for task in tasks))
    outside = [name for name in names if name in OUT_OF_DISTRIBUTION]
    pool = pool_of(names)
    few = max(task.shots for task in tasks)
    in_front = [task for task in tasks if task.shots == few]
    plans = {
        "heads": points(tasks, TENTHS, [0]),
        "ffns": points(tasks, [0], TENTHS),
        "random": random_points(tasks, RANDOM_LEVELS, [0]),
        "combined": points(tasks, TENTHS, GRID_FFNS),
        "transfer": transfer_points(in_front, TRANSFER_PERMILLE),
        "rescored": points(in_front[:N_RESCORED], TENTHS, [0], "rescored"),
        "others": points([task for task in tasks if task.name in outside], TENTHS, [0], "aggregate"),
    }
    receipt = numbers_key(identity, setting.spec, setting.bos) | {
        "name": identity.name, "setting": asdict(setting), "pool": pool,
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip
    study = Study(tuple(tasks), setting, receipt=receipt, n_layers=identity.shape.n_layers)
    parts: list[tuple[str, Iterator[Progress]]] = [
        ("head importance", survey(models, setting, tasks, "heads", store, compute)),
        ("FFN importance", survey(models, setting, tasks, "ffns", store, compute)),
        *((name, sweep(models, setting, plan, pool, store, compute)) for name, plan in plans.items() if plan),
    ]
    sizes = [len(tasks) * setting.cost(identity, what) for what in ("heads", "ffns")]
    sizes += [_distinct(identity, plan) * (setting.n_questions or 200) for plan in plans.values() if plan]
    done, all_cached = 0, True
    for (name, steps), size in zip(parts, sizes, strict=True):
        value = None
        for step in steps:
            value = step.value if step.value is not None else value
            all_cached &= step.cached
            share = step.done / step.total if step.total else 1
            yield Progress(done + round(share * size), sum(sizes), None, f"{name}: {step.message}", step.cached)
        done += size
        study = _with(study, name, value)
        yield Progress(done, sum(sizes), study, name, all_cached)


def _with(study: Study, name: str, value: Any) -> Study:
    if name == "head importance":
        return replace(study, heads=value)
    if name == "FFN importance":
        return replace(study, ffns=value)
    return replace(study, curves={**study.curves, name: value or Swept()})


def _distinct(identity: Any, plan: Sequence[Any]) -> int:
    """How many different masks a plan has, at most: levels between which no component goes are one."""
    shape = identity.shape
    return len({(point.task, point.by, point.of, point.seed, n_pruned(point.heads_permille, shape.n_heads_total),
                 n_pruned(point.ffns_permille, shape.n_layers)) for point in plan})  # fmt: skip


def mean_accuracy(rows: Sequence[Row], shots: int, heads: int, ffns: int) -> float:
    """Mean over tasks at one point, levels in permille; nan without any."""
    found = [row.acc for row in rows if (row.point.task.shots, row.point.heads_permille, row.point.ffns_permille)
             == (shots, heads, ffns)]  # fmt: skip
    return float(np.mean(found)) if found else math.nan


def statements(study: Study) -> list[Statement]:
    """The paper's statements beside ours."""
    heads, ffns = (study.curves.get(name, Swept()).rows for name in ("heads", "ffns"))
    combined = study.curves.get("combined", Swept()).rows
    found = [
        _drop(study, f"70 % of the heads can go for less than {SMALL_LOSS} points, at every shot count",
              [(heads, shots, 700, 0, SMALL_LOSS) for shots in study.shots]),
        _drop(study, f"20 % of the FFNs can go for less than {SMALL_LOSS} points, at every shot count",
              [(ffns, shots, 0, 200, SMALL_LOSS) for shots in study.shots]),
    ]  # fmt: skip
    for shots, h, f, lost in COMBINED:
        text = f"{shots} shots: {h / 10:.0f} % of heads with {f / 10:.0f} % of FFNs can go for about {lost} points"
        found.append(_drop(study, text, [(combined, shots, h, f, lost + 0.5)] if shots in study.shots else []))
    return [*found, _all_positive(study), _few_agree_more(study)]


def _drop(study: Study, text: str, cases: Sequence[tuple[Sequence[Row], int, int, int, float]]) -> Statement:
    words, holds = [], []
    for rows, shots, heads, ffns, allowed in cases:
        if ffns and not n_pruned(ffns, study.n_layers):
            return Statement(text, f"{ffns / 10:.0f} % of {study.n_layers} FFNs is none", "not measured")
        full, pruned = mean_accuracy(rows, shots, 0, 0), mean_accuracy(rows, shots, heads, ffns)
        if math.isnan(full - pruned):
            return Statement(text, "these levels were not measured", "not measured")
        words.append(f"{shots} shots {100 * (pruned - full):+.1f} points (mean {full:.1%} to {pruned:.1%})")
        holds.append(100 * (full - pruned) < allowed)
    if not words:
        return Statement(text, "this shot count was not measured", "not measured")
    return Statement(text, "; ".join(words), "holds" if all(holds) else "does not hold")


def _all_positive(study: Study) -> Statement:
    text, words, least = (
        "Head importance of every two tasks is positively correlated (SRCC), at every shot count",
        [],
        [],
    )
    for shots in study.shots:
        if (found := study.cross_task(shots)) is not None:
            upper = found.srcc[np.triu_indices(len(found.labels), 1)]
            if np.isfinite(upper).any():
                at = np.nanmin(upper)
                least.append(at)
                words.append(f"{shots} shots: {np.nansum(upper > 0):.0f} of {len(upper)} pairs, lowest {at:.2f}, "
                             f"mean {np.nanmean(upper):.2f}")  # fmt: skip
    if not words:
        return Statement(text, "fewer than two tasks were measured", "not measured")
    return Statement(text, "; ".join(words), "holds" if min(least) > 0 else "does not hold")


def _few_agree_more(study: Study) -> Statement:
    text = "Rankings of two few-shot settings agree more than those of zero-shot and few-shot"
    found = list(study.cross_shot().values())
    zero_few, few_few = [], []
    for each in found:
        for i, j in zip(*np.triu_indices(len(each.labels), 1), strict=True):
            (zero_few if "0" in (each.labels[i], each.labels[j]) else few_few).append(each.srcc[i, j])
    if not zero_few or not few_few or np.isnan(zero_few).all() or np.isnan(few_few).all():
        return Statement(text, "it takes zero shots and two other counts", "not measured")
    few, zero = float(np.nanmean(few_few)), float(np.nanmean(zero_few))
    return Statement(text, f"mean SRCC {few:.2f} against {zero:.2f}", "holds" if few > zero else "does not hold")


def tables(study: Study) -> dict[str, Any]:
    """DataFrames by file name."""
    import pandas as pd

    found = {"statements": pd.DataFrame([asdict(each) for each in study.statements])}
    for name, measured in (("head-importance", study.heads), ("ffn-importance", study.ffns)):
        rows = []
        for task, scores in measured.scores.items():
            at = dict(
                zip(("layer", "head"), np.indices(scores.scores.shape).reshape(scores.scores.ndim, -1), strict=False)
            )
            rows.append(pd.DataFrame({"task": task.name, "shots": task.shots, **at, "score": scores.scores.ravel()}))
        if rows:
            found[name] = pd.concat(rows, ignore_index=True)
    found["correlations"] = pd.DataFrame(study.correlations)
    for name, swept in study.curves.items():
        found[name] = pd.DataFrame([row.cells() for row in swept.rows])
    for axis in ("heads", "ffns"):
        found[f"break-points-{axis}"] = pd.DataFrame(
            [each.cells() for each in break_points(study.curves.get(axis, Swept()).rows, axis)]
        )
    return found
