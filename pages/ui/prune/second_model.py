"""The second model of the Prune screen: the same levels in its own order, on the questions that the first answers."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from engine.accuracy.evaluation import ModelComparison, accuracy, compared
from engine.importance.rankings_of import Axis, pruning_of_second, same_parts
from engine.models.session import Target
from engine.statistics import MIN_QUESTIONS
from pages.ui.downloads.origin import Origin
from pages.ui.page.tables import number, p_in_words, percent, percents, plain
from pages.ui.page.work import Work
from pages.ui.prune import dragging
from pages.ui.prune.charts import SECOND
from pages.ui.prune.experiment import AnswersSoFar, Experiment, accuracies, request
from pages.ui.prune.found import Found
from pages.ui.prune.orders import takes_long
from pages.ui.prune.tables import now_point

SLOT, CURVE = "second model", "curve of the second model"
PRIORITY = 2  # after the first model's figure


class SecondModel(Found):
    """The second model's stored results at the levels of the `first` one's experiment. `names`: of the first and of
    the second."""

    def __init__(self, first: Experiment, second: Target) -> None:
        self.names = first.target.spec.in_words, second.spec.in_words
        pruning, self.note = pruning_of_second(first.pruning, first.shape, second.shape), ""
        super().__init__(replace(first, target=second, pruning=pruning), self.names[1])
        if first.pruning.typed.text() and not same_parts(first.shape, second.shape):
            self.note = f"“Prune these as well” names parts of {self.names[0]}; nothing of it is pruned in "
            self.note += f"{self.names[1]}, whose parts are others."

    @property
    def asks(self) -> bool:
        """Returns whether its own order is missing and takes long, so that it is measured at a click."""
        return self.mask is None and takes_long(self.x)

    @property
    def work(self) -> Work[AnswersSoFar]:
        """Returns the work that measures it."""
        answers = accuracies(self.x, self.mask, self.names[1])
        return Work(SLOT, f"Accuracy of {self.names[1]}", answers, PRIORITY, while_seen=True)

    @property
    def answers(self) -> AnswersSoFar:
        """Returns the answers so far: the pruned model's, then the full one's."""
        return self.work.found or self.stored


def pair(first: AnswersSoFar, second: AnswersSoFar) -> ModelComparison | None:
    """Returns the two pruned models on the questions that both have answered; None before the first."""
    if not first.pruned or not second.pruned:
        return None
    return compared(first.pruned, second.pruned)


def rows(first: AnswersSoFar, second: AnswersSoFar, names: Sequence[str]) -> pd.DataFrame:
    """Returns one row per model: its accuracy with Wilson's interval, the full model's, and how many questions it alone
    answers; after them the difference of the two, with its interval and McNemar's p. All on the same questions."""
    both = pair(first, second)
    if both is None:
        return pd.DataFrame()
    n, (low, high), found = both.change.n, both.change.interval, []
    alone = both.change.lost, both.change.gained
    for name, side, answers, only in zip(names, (both.first, both.second), (first, second), alone, strict=True):
        whole = accuracy(answers.full.first(n)).acc if answers.full and len(answers.full) >= n else float("nan")
        row = {"model": name, "n": n, "acc": side.acc, "low": side.ci_low, "high": side.ci_high}
        found.append(row | {"acc_full": whole, "only_this_one_right": only})
    more = {"difference": both.change.difference, "difference_low": low, "difference_high": high}
    return pd.DataFrame(found).assign(**more, p_mcnemar=both.change.p_mcnemar)


def in_words(both: ModelComparison, names: Sequence[str]) -> str:
    """Returns text such as "**demo in fp32 answers 4.0 points more** than demo in int8, 95% interval 0.3 to 7.9 (p =
    0.041)"."""
    low, high = (100 * end for end in both.change.interval)
    first, second = map(plain, names)
    if both.change.n < MIN_QUESTIONS:
        return f"{both.change.n} questions are too few for a verdict (at least {MIN_QUESTIONS})"
    if not both.change.is_clear:
        ends = f"{number(low, 1, sign=True)} to {number(high, 1, sign=True)}"
        return f"**No detectable difference**: {second} less {first} may be {ends} points " + _p(both)
    more, ends = ("more", (low, high)) if both.change.difference > 0 else ("fewer", (-high, -low))
    points, (low, high) = number(100 * abs(both.change.difference), 1), (number(end, 1) for end in ends)
    return f"**{second} answers {points} points {more}** than {first}, 95% interval {low} to {high} {_p(both)}"


def _p(both: ModelComparison) -> str:
    return f"({p_in_words(both.change.p_mcnemar)})"


def figure(first: AnswersSoFar, second: AnswersSoFar, names: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the second model's accuracy, and the lines under it: its interval, that of its full model, and how the
    two models differ; "" and none before the first question that both have answered."""
    found, both = rows(first, second, names), pair(first, second)
    if both is None:
        return "", []
    _, of_second = found.to_dict("records")
    said = [f"95% interval **{percents(of_second['low'], of_second['high'])}**"]
    if of_second["acc_full"] == of_second["acc_full"]:
        said[0] += f"; its full model {percent(of_second['acc_full'])}"
    of = f"Of {both.change.n:,} questions only {plain(names[0])} answers **{both.change.lost}**"
    said += [in_words(both, names), f"{of}, only {plain(names[1])} **{both.change.gained}**"]
    return percent(both.second.acc), said


def with_points_of_second(
    points: pd.DataFrame, now: pd.DataFrame, compared: SecondModel, axis: Axis
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the first model's points of the curve and its position, and the second's after them, named."""
    moving, second = dragging.moving(), compared.answers
    more = compared.curve(axis) if moving in ([], [axis]) else points[:0]
    here = now[:0] if moving else now_point(compared.x, axis, second, second.mask)

    def joined(first: pd.DataFrame, other: pd.DataFrame, series: str) -> pd.DataFrame:
        named = first.assign(series=series, model=compared.names[0])
        return pd.concat([named, other.assign(series=SECOND, model=compared.names[1])], ignore_index=True)

    return joined(points, more, "measured"), joined(now, here, "now")


def with_second_model(of: Origin, x: Experiment, compared: SecondModel) -> Origin:
    """Returns the screen's origin with the second model added to its request and measurements."""
    second, (_, name) = compared.x, compared.names
    against = replace(request(x), against=second.target.spec.typed_beside(x.target.spec))
    measurements = {**of.measurements, "Second model": accuracies(second, compared.mask, name)}
    about = f"{of.about} · compared with {second.target.spec.in_words}"
    return replace(of, requests=[against], measurements=measurements, about=about)
