"""By which criterion can most go? One task pruned level by level by several rankings, beside random ones: accuracy over
levels, the area under each curve, who is clearly better than random, and how much the criteria agree.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cache import Store
from engine.accuracy.evaluation import evaluation
from engine.errors import Cancelled, HeadroomError, UsageError
from engine.importance.criteria import CRITERIA, Part, pass_of, passes, reads, record_of
from engine.importance.importance import importance
from engine.importance.rankings import Agreement, agreement
from engine.importance.rankings_of import (
    OF_ONE_TASK,
    PARTS,
    Evidence,
    Orders,
    Pruning,
    Ranking,
    evidence,
    orders_from,
    orders_of,
)
from engine.models.masks import parse_edits
from engine.models.rates import Pass, seconds_for, together_s
from engine.models.subject import Lab, Subject
from engine.progress import Progress, last_value
from engine.questions.amounts import all_characters, kept_share
from engine.questions.requests import Questions, TaskSpec
from engine.statistics import wilson
from engine.studies.surveys import Setting

RANDOM = "random"
ALONG = {"heads": "attention heads", "ffns": "FFNs", "both": "heads and FFNs, the same share of each"}
TENTHS = tuple(range(0, 1001, 100))
SEEDS = 5
DRAWS = 2000  # of the bootstrap
BETTER, UNCLEAR, WORSE = "clearly better than random", "not clearly", "clearly worse than random"


@dataclass(frozen=True)
class Comparing:
    """What is compared: rankings of one task (names of engine.importance.rankings_of.OF_ONE_TASK) at these levels, in
    permille, of heads, of FFNs, or the same of both; and so many random orders. UsageError: what cannot be compared."""

    task: TaskSpec
    criteria: tuple[str, ...] = tuple(CRITERIA)
    axis: str = "heads"
    levels: tuple[int, ...] = TENTHS
    n_seeds: int = SEEDS

    def __post_init__(self) -> None:
        for name in self.criteria:
            if name not in OF_ONE_TASK or name == RANDOM:
                known = ", ".join(each for each in OF_ONE_TASK if each != RANDOM)
                raise UsageError(f"criterion {name!r} is unknown; choose some of {known}")
        if self.axis not in ALONG:
            raise UsageError(f"axis {self.axis!r} is unknown; choose one of {', '.join(ALONG)}")
        if len(set(self.levels)) < 2 or list(self.levels) != sorted(set(self.levels)):
            raise UsageError("an area takes two levels or more, rising; give them like 0,10,20")
        if not self.criteria:
            raise UsageError("no criterion is chosen; choose one or more")

    @property
    def axes(self) -> tuple[Part, ...]:
        """The axes along which something is pruned."""
        return tuple(axis for axis in PARTS if self.axis in (axis, "both"))

    def rankings(self, n_questions: int | None) -> list[Ranking]:
        """Those of the criteria, then the random ones."""
        of_criteria = [Ranking(name, n_questions=n_questions) for name in self.criteria]
        return [*of_criteria, *(Ranking(RANDOM, seed) for seed in range(self.n_seeds))]

    def at(self, level: int) -> tuple[int, int]:
        """The levels of heads and of FFNs, in permille."""
        heads, ffns = (level if axis in self.axes else 0 for axis in PARTS)
        return heads, ffns


@dataclass(frozen=True, eq=False)
class Curve:
    """Which questions are right at each level: `correct` (level, n) bool, of the criterion or of random's `seed`."""

    criterion: str
    seed: int
    correct: np.ndarray

    @property
    def acc(self) -> np.ndarray:
        """(level,) accuracy."""
        return self.correct.mean(1)


@dataclass(frozen=True, eq=False)
class Compared:
    """Curves so far, each whole, in the order of the criteria and then random's; by axis the `scores` that rank, by
    criterion (of rankings without scores of their own each part's place in the order); for criteria that could not be
    measured the reason. `left`: what is still to be read, in characters by kind of pass; told where nothing is
    computed."""

    comparing: Comparing
    curves: tuple[Curve, ...] = ()
    scores: Mapping[Part, Mapping[str, np.ndarray]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    chance: float = 0.0
    n: int = 0
    left: Mapping[Pass, float] = field(default_factory=dict)

    def takes_s(self, store: Store, subject: Subject) -> float | None:
        """Seconds that what is left would take here; None while that is not known."""
        return together_s(seconds_for(store, subject, kind, characters) for kind, characters in self.left.items())

    @property
    def is_whole(self) -> bool:
        """Whether everything is measured that can be."""
        return len(self.curves) + len(self.failed) == len(self.comparing.criteria) + self.comparing.n_seeds

    @property
    def random(self) -> tuple[Curve, ...]:
        """The curves of random orders."""
        return tuple(curve for curve in self.curves if curve.criterion == RANDOM)

    def agreement(self, axis: Part) -> Agreement | None:
        """How much the criteria's scores agree (Spearman), without p; None with fewer than two."""
        scores = self.scores.get(axis, {})
        return agreement(scores, permutations=0) if len(scores) > 1 else None

    def cells(self) -> list[dict[str, Any]]:
        """One row a curve and level, with Wilson's 95 % interval."""
        rows = []
        for curve in self.curves:
            for level, right in zip(self.comparing.levels, curve.correct, strict=True):
                low, high = wilson(int(right.sum()), self.n)
                rows.append({"criterion": curve.criterion, "seed": curve.seed, "level": level / 1000,
                             "acc": float(right.mean()), "low": low, "high": high, "n": self.n})  # fmt: skip
        return rows


@dataclass(frozen=True)
class Area:
    """Mean accuracy of a criterion over the levels, 0-1, with a 95 % interval; the same of its difference from the mean
    of the random orders, and how many of them it beats. Of random itself the difference is 0."""

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
        """Whether the interval of the difference leaves 0 out; "" of random."""
        if self.criterion == RANDOM:
            return ""
        return BETTER if self.gain_low > 0 else WORSE if self.gain_high < 0 else UNCLEAR


def compare(lab: Lab, setting: Setting, comparing: Comparing, compute: bool = True) -> Iterator[Progress[Compared]]:
    """Yields Progress, its value the Compared so far; what is stored is not computed again, and only that is read where
    `compute` is False."""
    subject = lab.subject(setting.spec, setting.bos)
    questions = setting.judged(comparing.task, lab.store)
    run = _Run(lab, setting, comparing, subject, questions)
    rankings = comparing.rankings(setting.n_ranking)
    size = len(comparing.levels) * questions.n
    costs = {ranking: _cost(run, ranking) for ranking in rankings}
    total, done, all_cached = sum(costs.values()) + len(rankings) * size, 0, True
    for ranking in rankings:
        label = CRITERIA[ranking.name].label if ranking.name in CRITERIA else ranking.name
        label += f" {ranking.seed + 1}" * (ranking.name == RANDOM)
        try:
            orders = run.known_orders(ranking)
            if orders is None and compute:
                all_cached = False
                steps = orders_of(subject, run.all_of(ranking), setting.data_dir).run(lab)
                orders = yield from last_value(steps, done, total, costs[ranking], f"{label}: ranking")
            if orders is not None:
                for step in run.curve(ranking, orders, compute):
                    all_cached &= step.cached
                    yield step.within(done + costs[ranking], total, label=f"{label}: {step.message}")
            else:
                run.miss(ranking)
        except Cancelled:
            raise
        except HeadroomError as error:
            run.failed[ranking.name] = str(error)
        done += costs[ranking] + size
        yield Progress(done, total, run.so_far(compute), label, all_cached)


def areas(found: Compared, draws: int = DRAWS) -> list[Area]:
    """The area of every criterion, largest first, and of random; none before random is measured.

    The area is the trapezoid's mean over the levels. Intervals are percentiles (2.5 and 97.5) of a bootstrap over
    questions (Efron 1979): each draw takes the same questions for all curves, so that differences are paired. It draws
    the random orders anew as well: a few of them are a sample too, and differ much.
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
    """(level,) what each level counts in a mean over the range: trapezoids."""
    steps = np.diff(levels) / (levels[-1] - levels[0])
    return (np.append(steps, 0) + np.append(0, steps)) / 2


@dataclass
class _Run:
    """A comparison as it is measured."""

    lab: Lab
    setting: Setting
    comparing: Comparing
    subject: Subject
    questions: Questions
    curves: list[Curve] = field(default_factory=list)
    scores: dict[Part, dict[str, np.ndarray]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    left: dict[str, tuple[Pass, float]] = field(default_factory=dict)  # by what is missing

    def so_far(self, compute: bool) -> Compared:
        left: dict[Pass, float] = {}
        for kind, characters in self.left.values():
            left[kind] = left.get(kind, 0.0) + characters
        scores: dict[Part, dict[str, np.ndarray]] = {axis: dict(each) for axis, each in self.scores.items()}
        return Compared(self.comparing, tuple(self.curves), scores, dict(self.failed), self.questions.requests.chance,
                        self.questions.n, {} if compute else left)  # fmt: skip

    def all_of(self, ranking: Ranking) -> Pruning:
        return Pruning(self.comparing.task, ranking, *self.comparing.at(1000), parse_edits("", self.subject.shape))

    def known_orders(self, ranking: Ranking) -> Orders | None:
        """The orders where all that they are made from is stored; what ranks is noted."""
        wanted = self.all_of(ranking).missing(Evidence())
        known = Evidence()
        if wanted:
            task, data_dir = self.comparing.task, self.setting.data_dir
            known = evidence(self.subject, task, ranking, wanted, data_dir=data_dir).so_far(self.lab) or known
        return None if self.all_of(ranking).missing(known) else orders_from(self.subject.shape, ranking, known)

    def curve(self, ranking: Ranking, orders: Orders, compute: bool) -> Generator[Progress[Any], None, None]:
        """Measures the levels of one ranking."""
        self._note(ranking, orders)
        n, rows, missing = self.questions.n, [], 0.0
        for number, level in enumerate(self.comparing.levels):
            mask = orders.mask(*self.comparing.at(level))
            wanted = evaluation(self.subject, self.questions, mask)
            found = wanted.stored(self.lab)
            if found is None and compute:
                steps = wanted.run(self.lab)
                whole = len(self.comparing.levels) * n
                found = yield from last_value(steps, number * n, whole, label=f"{level / 10:g} %")
            if found is not None:
                rows.append(found.correct)
            else:
                missing += wanted.left(self.lab).characters["forward"]
        if missing:
            self.left[f"{ranking.name} {ranking.seed}"] = "forward", missing
        else:
            self.curves.append(Curve(ranking.name, ranking.seed, np.array(rows)))

    def miss(self, ranking: Ranking) -> None:
        """Counts what a ranking that is not known takes: its scores, and its levels."""
        train = self.setting.ranked(self.comparing.task, self.lab.store)
        for axis in self.comparing.axes:
            what = ranking.what(axis)
            if importance(self.subject, train, what).stored(self.lab) is None:
                self.left[record_of(what)] = pass_of(what), reads(self.subject, train, what)
        orders = orders_from(self.subject.shape, ranking, Evidence())  # any: how much is left does not depend on it
        masks = [orders.mask(*self.comparing.at(level)) for level in self.comparing.levels]
        read = all_characters(self.questions) * sum(map(kept_share, masks))
        self.left[f"{ranking.name} {ranking.seed}"] = "forward", read

    def _note(self, ranking: Ranking, orders: Orders) -> None:
        """Keeps what ranks: the scores of a criterion, else the places in the order."""
        if ranking.name == RANDOM and ranking.seed:
            return
        for axis in self.comparing.axes:
            scores = None
            if ranking.name in CRITERIA:
                train = self.setting.ranked(self.comparing.task, self.lab.store)
                found = importance(self.subject, train, ranking.what(axis)).stored(self.lab)
                scores = None if found is None else found.scores.ravel()
            if scores is None:
                scores = np.argsort(getattr(orders, axis)).astype(float)
            self.scores.setdefault(axis, {})[ranking.name] = scores


def _cost(run: _Run, ranking: Ranking) -> int:
    """Forward passes that a ranking's scores take, about."""
    missing = run.all_of(ranking).missing(Evidence())
    wanted: list[Part] = [axis for axis in run.comparing.axes if axis in missing]
    per_question = sum(passes(ranking.what(axis), run.subject.shape) for axis in wanted)
    return per_question * (run.setting.n_ranking or run.setting.n_judges)
