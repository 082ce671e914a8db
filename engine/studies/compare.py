"""Comparison of criteria: one task pruned level by level by several rankings and by random ones. Gives accuracy over
levels, the area under each curve, which criteria are clearly better than random, and how much they agree.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from engine.accuracy.evaluation import evaluation
from engine.composed import ComposedRun, composed
from engine.errors import Canceled, HeadroomError, UsageError, refuse_unknown
from engine.importance.criteria import CRITERIA, ON_REQUEST, Part
from engine.importance.orders import OF_ONE_TASK, PARTS, Orders, Pruning, Ranking, orders_from, orders_of
from engine.importance.rankings import Agreement, agreement
from engine.importance.rules import Evidence
from engine.importance.scores import importance
from engine.measurement import Measurement, Workload
from engine.models.masks import parse_edits
from engine.models.session import Session, Target
from engine.progress import Progress
from engine.questions.rendering import Questions, TaskSpec
from engine.shapes import ModelShape
from engine.statistics import wilson
from engine.studies.surveys import SurveySettings
from engine.timing.workload import all_characters, kept_share

COMPARED = tuple(name for name in CRITERIA if name not in ON_REQUEST)  # by default
RANDOM = "random"
ALONG = {"heads": "attention heads", "ffns": "FFNs", "both": "heads and FFNs, the same share of each"}
TENTHS = tuple(range(0, 1001, 100))
SEEDS = 5
DRAWS = 2000  # of the bootstrap
BETTER, UNCLEAR, WORSE = "clearly better than random", "not clearly", "clearly worse than random"


@dataclass(frozen=True)
class Comparing:
    """Settings of a comparison: rankings of one task (names of engine.importance.orders.OF_ONE_TASK) at `levels`,
    in permille, of heads, of FFNs, or the same of both; and `n_seeds` random orders. UsageError: invalid settings."""

    task: TaskSpec
    criteria: tuple[str, ...] = COMPARED
    axis: str = "heads"
    levels: tuple[int, ...] = TENTHS
    n_seeds: int = SEEDS

    def __post_init__(self) -> None:
        for name in self.criteria:
            if name not in OF_ONE_TASK or name == RANDOM:
                known = ", ".join(each for each in OF_ONE_TASK if each != RANDOM)
                raise UsageError(f"criterion {name!r} is unknown; choose some of {known}")
        refuse_unknown("axis", self.axis, ALONG)
        if len(set(self.levels)) < 2 or list(self.levels) != sorted(set(self.levels)):
            raise UsageError("an area needs two or more levels in ascending order; give them like 0,10,20")
        if not self.criteria:
            raise UsageError("no criterion is chosen; choose one or more")

    @property
    def axes(self) -> tuple[Part, ...]:
        """The axes along which something is pruned."""
        return tuple(axis for axis in PARTS if self.axis in (axis, "both"))

    def rankings(self, n_questions: int | None) -> list[Ranking]:
        """Returns the rankings by the criteria, then the random ones."""
        of_criteria = [Ranking(name, n_questions=n_questions) for name in self.criteria]
        return [*of_criteria, *(Ranking(RANDOM, seed) for seed in range(self.n_seeds))]

    def pruning(self, ranking: Ranking, shape: ModelShape) -> Pruning:
        """Returns the Pruning of all axes by a ranking."""
        return Pruning(self.task, ranking, *self.at(1000), parse_edits("", shape))

    def at(self, level: int) -> tuple[int, int]:
        """Returns the levels of heads and of FFNs, in permille."""
        heads, ffns = (level if axis in self.axes else 0 for axis in PARTS)
        return heads, ffns


@dataclass(frozen=True, eq=False)
class Curve:
    """The questions answered right at each level: `correct` (level, n) bool, for a criterion or random's `seed`."""

    criterion: str
    seed: int
    correct: np.ndarray

    @property
    def acc(self) -> np.ndarray:
        """(level,) accuracy."""
        return self.correct.mean(1)


@dataclass(frozen=True, eq=False)
class ComparedCriteria:
    """The comparison so far.

    comparing: its settings
    curves: complete curves, in the order of the criteria, then the random ones
    scores: by axis and criterion, the scores that rank (for rankings without scores, the positions in the order)
    failed: why a criterion could not be measured
    chance: accuracy of guessing
    n: questions
    passes: by criterion, about how many forward passes its scores take, over all training questions
    """

    comparing: Comparing
    curves: tuple[Curve, ...] = ()
    scores: Mapping[Part, Mapping[str, np.ndarray]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    chance: float = 0.0
    n: int = 0
    passes: Mapping[str, int] = field(default_factory=dict)

    @property
    def random(self) -> tuple[Curve, ...]:
        """The curves of random orders."""
        return tuple(curve for curve in self.curves if curve.criterion == RANDOM)

    def agreement(self, axis: Part) -> Agreement | None:
        """Returns the Agreement of the criteria's scores (Spearman), without p; None with fewer than two."""
        scores = self.scores.get(axis, {})
        return agreement(scores, permutations=0) if len(scores) > 1 else None

    def cells(self) -> list[dict[str, Any]]:
        """Returns one row per curve and level, with Wilson's 95% interval."""
        rows = []
        for curve in self.curves:
            for level, right in zip(self.comparing.levels, curve.correct, strict=True):
                low, high = wilson(int(right.sum()), self.n)
                rows.append({"criterion": curve.criterion, "seed": curve.seed, "level": level / 1000,
                             "acc": float(right.mean()), "low": low, "high": high, "n": self.n})  # fmt: skip
        return rows


@dataclass(frozen=True)
class Area:
    """The area under a criterion's curve, compared with random orders.

    criterion: its name
    area: mean accuracy over the levels, 0-1
    low, high: its 95% interval
    gain: difference from the mean of the random orders; 0 for random itself
    gain_low, gain_high: its 95% interval
    beats: how many random orders have a smaller area
    n_random: random orders
    """

    criterion: str
    area: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float
    beats: int
    n_random: int

    @property
    def verdict(self) -> str:
        """BETTER or WORSE if the interval of the gain excludes 0, else UNCLEAR; "" for random."""
        if self.criterion == RANDOM:
            return ""
        return BETTER if self.gain_low > 0 else WORSE if self.gain_high < 0 else UNCLEAR


def comparison(target: Target, setting: SurveySettings, comparing: Comparing) -> Measurement[ComparedCriteria]:
    """Returns the ComparedCriteria so far; rankings that cannot be measured are listed with the reason."""
    rankings = comparing.rankings(setting.n_ranking)

    def body(run: ComposedRun) -> Generator[Progress[Any], None, ComparedCriteria]:
        questions = setting.validation_questions(comparing.task, run.session.store)
        size = len(comparing.levels) * questions.n
        costs = {ranking: _passes(target, setting, comparing, ranking) for ranking in rankings}
        each = {ranking.name: cost for ranking, cost in costs.items()}
        found = ComparedCriteria(comparing, chance=questions.rendered.chance, n=questions.n, passes=each)
        run.total = sum(costs.values()) + len(rankings) * size
        for ranking in rankings:
            label, done = _label(ranking), run.done
            wanted = orders_of(target, comparing.pruning(ranking, target.shape), setting.data_dir)
            try:
                orders = yield from run.part(wanted, costs[ranking], f"{label}: ranking")
                if orders is None:
                    run.expect(f"levels by {ranking}", partial(_levels, target, questions, comparing, ranking))
                else:
                    found = _with_scores(
                        found, _ranked_by(run.session, target, setting, comparing, ranking, orders), ranking
                    )
                    curve = yield from _curve(run, target, questions, comparing, orders, label)
                    if curve is not None:
                        found = replace(found, curves=(*found.curves, Curve(ranking.name, ranking.seed, curve)))
            except Canceled:
                raise
            except HeadroomError as error:
                found = replace(found, failed={**found.failed, ranking.name: str(error)})
            run.done = done + costs[ranking] + size
            yield run.so_far(found, label)
        return found

    return composed(target, ("comparison", setting, comparing), body)


def areas(found: ComparedCriteria, draws: int = DRAWS) -> list[Area]:
    """Returns the areas of all criteria and of random, largest first; none before random is measured.

    The area is the mean over the levels by trapezoids. Intervals are percentiles (2.5 and 97.5) of a bootstrap over
    questions (Efron 1979): each draw takes the same questions for all curves, so that differences are paired. It also
    resamples the random orders, because they are a small sample and differ considerably.
    """
    if len(found.random) < max(1, found.comparing.n_seeds) or not found.n:
        return []
    weights = _weights(found.comparing.levels)
    by_question = np.array([weights @ curve.correct for curve in found.curves])  # (curve, n)
    names = [curve.criterion for curve in found.curves if curve.criterion != RANDOM]
    random = by_question[len(names) :]
    generator, drawn = np.random.default_rng(0), np.empty((draws, len(names) + 1))
    for draw in range(draws):
        mine = by_question[:, generator.integers(0, found.n, found.n)].mean(1)
        orders = generator.integers(0, len(random), len(random))
        drawn[draw] = np.append(mine[: len(names)], mine[len(names) :][orders].mean())
    means, gains = np.append(by_question[: len(names)].mean(1), random.mean()), drawn - drawn[:, -1:]
    (low, high), (gain_low, gain_high) = (np.percentile(each, [2.5, 97.5], axis=0) for each in (drawn, gains))
    each_random = random.mean(1)
    areas = [
        Area(name, float(means[at]), float(low[at]), float(high[at]), float(means[at] - means[-1]),
             float(gain_low[at]), float(gain_high[at]), int((each_random < means[at]).sum()), len(random))
        for at, name in enumerate([*names, RANDOM])
    ]  # fmt: skip
    return sorted(areas, key=lambda each: -each.area)


def _weights(levels: Sequence[int]) -> np.ndarray:
    """Returns (level,): the weight of each level in a mean over the range, by trapezoids."""
    steps = np.diff(levels) / (levels[-1] - levels[0])
    return (np.append(steps, 0) + np.append(0, steps)) / 2


def _label(ranking: Ranking) -> str:
    named = CRITERIA[ranking.name].label if ranking.name in CRITERIA else ranking.name
    return f"{named} {ranking.seed + 1}" if ranking.name == RANDOM else named


def _passes(target: Target, setting: SurveySettings, comparing: Comparing, ranking: Ranking) -> int:
    """Returns about how many forward passes a ranking's scores take."""
    missing = comparing.pruning(ranking, target.shape).missing(Evidence())
    return sum(setting.cost(target.shape, ranking.what(axis)) for axis in comparing.axes if axis in missing)


def _levels(target: Target, questions: Questions, comparing: Comparing, ranking: Ranking) -> Workload:
    """Returns the workload of all levels of a ranking that is not known yet; it is the same for every order."""
    orders = orders_from(target.shape, ranking, Evidence())
    kept = sum(kept_share(orders.mask(*comparing.at(level))) for level in comparing.levels)
    return Workload({"forward": all_characters(questions) * kept})


def _curve(
    run: ComposedRun, target: Target, questions: Questions, comparing: Comparing, orders: Orders, label: str
) -> Generator[Progress[Any], None, np.ndarray | None]:
    """Returns (level, n): which questions are right, or None if the answers at some level are missing."""
    rows: list[np.ndarray] = []
    for level in comparing.levels:
        wanted = evaluation(target, questions, orders.mask(*comparing.at(level)))
        answers = yield from run.part(wanted, questions.n, f"{label}: {level / 10:g}%")
        rows += [] if answers is None else [answers.correct]
    return np.array(rows) if len(rows) == len(comparing.levels) else None


def _ranked_by(
    session: Session, target: Target, setting: SurveySettings, comparing: Comparing, ranking: Ranking, orders: Orders
) -> dict[Part, np.ndarray]:
    """Returns the scores that rank along each axis: those of a criterion, else each component's position in the
    order."""
    found: dict[Part, np.ndarray] = {}
    for axis in comparing.axes:
        scores = None
        if ranking.name in CRITERIA:
            train = setting.train_questions(comparing.task, session.store)
            scores = importance(target, train, ranking.what(axis)).stored(session)
        found[axis] = np.argsort(getattr(orders, axis)).astype(float) if scores is None else scores.scores.ravel()
    return found


def _with_scores(found: ComparedCriteria, scores: Mapping[Part, np.ndarray], ranking: Ranking) -> ComparedCriteria:
    """Returns a copy with the scores of a ranking; for random, only of the first order."""
    if ranking.name == RANDOM and ranking.seed:
        return found
    by_axis = {axis: {**found.scores.get(axis, {}), ranking.name: each} for axis, each in scores.items()}
    return replace(found, scores={**found.scores, **by_axis})
