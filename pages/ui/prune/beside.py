"""The second model of the Prune screen: the same levels of its own ranking, on the questions that the first answered.

No streamlit in the measuring: the generators run in the worker thread, behind the first model's figure.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pandas as pd

from engine.accuracy.evaluation import Answers, accuracy, evaluation
from engine.importance.rankings_of import Axis, Evidence, orders_of
from engine.models.masks import Mask
from engine.models.subject import Lab, Subject
from engine.progress import Progress
from engine.statistics import MIN_QUESTIONS
from engine.studies.two_models import Compared, compared, pruning_of_second, same_parts
from pages.ui.prune import dragging, experiment, forecasts
from pages.ui.prune.experiment import LEVELS_PERMILLE, AnswersSoFar, Experiment
from pages.ui.prune.tables import curve_points, now_point
from pages.ui.shared.defaults import RANKING_QUESTIONS
from pages.ui.shared.origin import Origin
from pages.ui.shared.python_code import of_two_accuracies
from pages.ui.shared.runtime import lab, store
from pages.ui.shared.tables import number, p_in_words, percent, percents, plain
from pages.ui.shared.work import Work

SLOT, CURVE = "second model", "curve of the second model"
PRIORITY = 2  # behind the first model's figure


@dataclass
class Beside:
    """What the last run of the whole page found of the second model: `x` is the first's experiment with it."""

    x: Experiment
    known: Evidence
    mask: Mask | None
    stored: AnswersSoFar
    names: tuple[str, str]  # of the first and of the second
    note: str = ""
    points: dict[str, tuple[int, pd.DataFrame]] = field(default_factory=dict)

    def work(self, n: int) -> Work[AnswersSoFar]:
        """What measures it on the first n questions."""
        run = partial(measure, self.x, self.mask, n, lab())
        return Work(SLOT, f"{self.x.key} {n}", f"Accuracy of {self.names[1]}", run, PRIORITY, while_seen=True)

    def answers(self, n: int) -> AnswersSoFar:
        """The answers to the first n questions so far: the pruned model's, and the full one's behind them."""
        found = self.work(n).found or self.stored
        full, pruned = (None if each is None else each.first(n) for each in (found.full, found.pruned))
        return AnswersSoFar(full, pruned)

    def mask_now(self) -> Mask | None:
        """What is pruned in it; None as long as its ranking is measured."""
        return self.mask if self.mask is not None else self.x.mask(experiment.recall_known(self.x, lab()))

    def curve(self, axis: Axis) -> pd.DataFrame:
        """The measured levels of the axis; nothing is read while a slider moves."""
        puts = store().n_puts
        if axis not in self.points or (self.points[axis][0] != puts and not dragging.moving()):
            self.points[axis] = puts, curve_points(self.x, axis, self.known, lab())
        return self.points[axis][1]

    def curve_work(self, axis: Axis) -> Work[int]:
        """What measures every tenth of the axis."""
        there = {round(1000 * level) for level in self.curve(axis)["level"]}
        missing = sorted(set(LEVELS_PERMILLE) - there)
        run = partial(experiment.measure_curve, self.x, axis, lab())
        takes = partial(forecasts.curve_s, self.x, axis, self.known, missing, lab())
        return Work(CURVE, self.x.curve_key(axis), f"Curve of {self.names[1]}", run, 1, takes=takes)


def look(x: Experiment, second: Subject) -> Beside:
    """What is known of the second model at the levels of the first one's experiment; computes nothing."""
    pruning = pruning_of_second(x.pruning, x.shape, second.shape)
    other = replace(x, subject=second, pruning=pruning, width=0)
    known = experiment.recall_known(other, lab())
    mask = other.mask(known)
    names = x.subject.spec.in_words, second.spec.in_words
    note = ""
    if x.pruning.typed.text() and not same_parts(x.shape, second.shape):
        note = f"“Prune also” names parts of {names[0]}; nothing of it is pruned in {names[1]}, whose parts are others."
    return Beside(other, known, mask, experiment.recall_measured(other, mask, lab()), names, note)


def measure(x: Experiment, mask: Mask | None, n: int, lab: Lab) -> Iterator[Progress[AnswersSoFar]]:
    """Job: the pruned model's answers to the first n questions, then the full model's."""
    full, pruned, ranking = None, None, 0 if mask is not None else 3 * RANKING_QUESTIONS
    total, name = 2 * n + ranking, x.subject.spec.in_words
    if mask is None:
        for step in orders_of(x.subject, x.pruning, x.data_dir).run(lab):
            mask = x.pruning.mask(step.value) if step.value is not None else mask
            yield replace(step.within(label=f"{name}, {step.message}"), share=ranking * step.part / total)
    assert mask is not None

    def placed(step: Progress[Answers], before: int, title: str) -> Progress[AnswersSoFar]:
        message, share = step.message or f"{name}, {title.lower()}", (before + n * min(1.0, step.part)) / total
        return Progress(min(step.done, n), n, AnswersSoFar(full, pruned, mask), message, step.cached, share=share)

    for step in _first_n(x, mask, n, lab):
        pruned = step.value if step.value is not None else pruned
        full = pruned if mask.is_full else None
        yield placed(step, ranking, experiment.PRUNED)
    if not mask.is_full:
        for step in _first_n(x, Mask.full(x.shape), n, lab):
            full = step.value if step.value is not None else full
            yield placed(step, ranking + n, experiment.FULL)
    yield Progress(n, n, AnswersSoFar(full, pruned, mask))


def _first_n(x: Experiment, mask: Mask, n: int, lab: Lab) -> Iterator[Progress[Answers]]:
    for step in evaluation(x.subject, x.questions, mask).run(lab):
        yield step
        if step.value is not None and len(step.value) >= n:
            return


def is_complete(found: AnswersSoFar, n: int) -> bool:
    """Whether both the pruned and the full model have answered n questions."""
    return all(answers is not None and len(answers) >= n for answers in (found.full, found.pruned))


def pair(first: AnswersSoFar, second: AnswersSoFar) -> Compared | None:
    """The two pruned models on the questions that both have answered; None before there is one."""
    if not first.pruned or not second.pruned:
        return None
    return compared(first.pruned, second.pruned)


def rows(first: AnswersSoFar, second: AnswersSoFar, names: Sequence[str]) -> pd.DataFrame:
    """One row a model: its accuracy with Wilson's interval, the full model's, and how many questions it alone answers;
    behind them the difference of the two, with its interval and McNemar's p. All on the same questions."""
    both = pair(first, second)
    if both is None:
        return pd.DataFrame()
    n, (low, high), found = both.change.n, both.interval, []
    alone = both.only_first, both.only_second
    for name, side, answers, only in zip(names, (both.first, both.second), (first, second), alone, strict=True):
        whole = accuracy(answers.full.first(n)).acc if answers.full and len(answers.full) >= n else float("nan")
        row = {"model": name, "n": n, "acc": side.acc, "low": side.ci_low, "high": side.ci_high}
        found.append(row | {"acc_full": whole, "only_this_one_right": only})
    more = {"difference": both.difference, "difference_low": low, "difference_high": high}
    return pd.DataFrame(found).assign(**more, p_mcnemar=both.change.p_mcnemar)


def in_words(both: Compared, names: Sequence[str]) -> str:
    """Such as "**demo in fp32 answers 4.0 points more** than demo in int8, 95 % interval 0.3 to 7.9 (p = 0.041)"."""
    low, high = (100 * end for end in both.interval)
    first, second = map(plain, names)
    if both.change.n < MIN_QUESTIONS:
        return f"{both.change.n} questions are too few to tell the two apart"
    if not both.change.is_clear:
        ends = f"{number(low, 1, sign=True)} to {number(high, 1, sign=True)}"
        return f"**No detectable difference**: {second} less {first} may be {ends} points " + _p(both)
    more, ends = ("more", (low, high)) if both.difference > 0 else ("fewer", (-high, -low))
    points, (low, high) = number(100 * abs(both.difference), 1), (number(end, 1) for end in ends)
    return f"**{second} answers {points} points {more}** than {first}, 95 % interval {low} to {high} {_p(both)}"


def _p(both: Compared) -> str:
    return f"({p_in_words(both.change.p_mcnemar)})"


def lines(first: AnswersSoFar, second: AnswersSoFar, names: Sequence[str]) -> list[str]:
    """What stands under the first model's figure: the second's accuracy, its full model's, and how the two differ."""
    found, both = rows(first, second, names), pair(first, second)
    if both is None:
        return []
    _, of_second = found.to_dict("records")
    interval = percents(of_second["low"], of_second["high"])
    said = [f"**{plain(names[1])}: {percent(both.second.acc)}**, 95 % interval {interval}"]
    if of_second["acc_full"] == of_second["acc_full"]:
        said[0] += f"; its full model {percent(of_second['acc_full'])}"
    of = f"Of {both.change.n:,} questions only {plain(names[0])} answers **{both.only_first}**"
    return [*said, in_words(both, names), f"{of}, only {plain(names[1])} **{both.only_second}**"]


def with_second(
    points: pd.DataFrame, now: pd.DataFrame, beside: Beside, axis: Axis, n: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The first model's points of the curve and where it stands now, and the second's behind them, named."""
    moving = dragging.moving()
    more = beside.curve(axis) if moving in ([], [axis]) else points[:0]
    here = now[:0] if moving else now_point(beside.x, axis, beside.answers(n), beside.mask)
    named = zip(((points, more), (now, here)), ("measured", "now"), strict=True)
    found = []
    for (first, second), series in named:
        of = (first.assign(series=series, model=beside.names[0]), second.assign(series="second", model=beside.names[1]))
        found.append(pd.concat(of, ignore_index=True))
    return found[0], found[1]


def told(of: Origin, x: Experiment, beside: Beside, found: AnswersSoFar) -> Origin:
    """The screen's origin with the second model in its command, its program, its records and what it says."""
    n, second = x.n_taken(found), beside.x
    reads = {**of.reads, "Second model": lambda lab: experiment.recall_measured(second, beside.mask, lab)}
    words = ["--against", second.subject.spec.typed_beside(x.subject.spec)]
    of_both = ((x.subject, x.pruning), (second.subject, second.pruning))
    program = of_two_accuracies(of_both, x.data_dir, x.task, n)
    both = pair(found, beside.answers(n))
    says = (
        [] if both is None else [f"{plain(beside.names[1])}: {percent(both.second.acc)}", in_words(both, beside.names)]
    )
    about = f"{of.about} · compared with {beside.names[1]}"
    more = {"reads": reads, "says": [*of.says, *says], "python": program, "about": about}
    return replace(of, command=f"{of.command} {shlex.join(words)}", **more)
