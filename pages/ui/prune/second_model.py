"""The second model of the Prune screen: the same levels in its own order, on the questions that the first answers."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import ModelComparison, compared
from engine.importance.orders import Axis, pruning_of_second, same_parts
from engine.models.session import Target
from engine.views.accuracy import compared_words, two_models_rows
from pages.ui.downloads.origin import Origin
from pages.ui.page.marks import mark
from pages.ui.page.tables import percent, percents, plain
from pages.ui.prune.charts import SECOND
from pages.ui.prune.estimates import pruned_in_words
from pages.ui.prune.experiment import Experiment, accuracies, accuracy_work, request
from pages.ui.prune.orders import takes_long
from pages.ui.prune.results import Results, read_results
from pages.ui.prune.tables import now_point

if TYPE_CHECKING:
    from pages.ui.prune.state import PruneState

HELP = (
    "The same questions, each model pruned at the levels above in its own order: of layers, too, each drops the same "
    "share, by its own order. Right alone: questions that only this one answers; p is McNemar's exact test of those, "
    "the interval of the difference is Bonett and Price's. Chosen under Settings, by “Compare with”."
)


@dataclass(frozen=True, kw_only=True)
class SecondModel(Results):
    """The second model's results.

    `names`: of the first and of the second
    `note`: what the typed mask does not prune of it, or ""
    """

    names: tuple[str, str]
    note: str

    @property
    def asks(self) -> bool:
        """Returns whether its own order is missing and takes long, so that it is measured at a click."""
        return self.mask is None and takes_long(self.x)


def read_second(first: Experiment, axis: Axis, second: Target) -> SecondModel:
    """Returns the second model's results at the levels of the first one's experiment."""
    names, note = (first.target.spec.in_words, second.spec.in_words), ""
    x = replace(first, target=second, pruning=pruning_of_second(first.pruning, first.shape, second.shape))
    if first.pruning.typed.text() and not same_parts(first.shape, second.shape):
        note = f"“Prune these as well” names parts of {names[0]}; nothing of it is pruned in {names[1]}, whose parts "
        note += "are others."
    found: dict[str, Any] = read_results(x, axis, names[1])
    return SecondModel(**found, names=names, note=note)


def draw_second_model(state: "PruneState") -> None:
    """Draws the second model's results so far, if one is chosen, or the button that measures it."""
    of, found = state.second_model, state.answers
    if of is None:
        return
    second, name = of.answers, plain(of.second)
    if (both := pair(state)) is not None:
        st.metric(f"{name}: questions right", percent(both.second.acc))
        said = [*lines(state, both), pruned_in_words(of.x, of.known, second.mask)]
        st.markdown("  \n".join(f":small[{line}]" for line in said), help=HELP)
        progress = "measured" if of.x.is_complete(second) else "measuring"
        mark("second figure", progress, model=of.second, questions=len(second.pruned or ()), of=of.x.questions.n)
    if of.note:
        st.caption(plain(of.note))
    if not state.x.is_complete(found):
        st.caption(f"{name} follows once {plain(of.names[0])} is measured.")
    elif not of.x.is_complete(second):
        work = accuracy_work(of.x, of.mask, of.second)
        if not work.line() and of.asks:
            work.offer(f"Measure {name}", "compare_arrows", "Its own order first, then its answers.")


def pair(state: "PruneState") -> ModelComparison | None:
    """Returns the two pruned models on the questions that both have answered; None without any."""
    first = state.answers.pruned
    second = None if state.second_model is None else state.second_model.answers.pruned
    return compared(first, second) if first and second else None


def rows(state: "PruneState", both: ModelComparison) -> list[dict[str, Any]]:
    """Returns a row for each of the two models."""
    of = state.second_model
    assert of is not None
    return two_models_rows(both, of.names, (state.answers.full, of.answers.full))


def lines(state: "PruneState", both: ModelComparison) -> list[str]:
    """Returns how the second model differs from the first, its interval, and its full model."""
    of = state.second_model
    assert of is not None
    of_full = rows(state, both)[1]["acc_full"]
    more = f"; its full model {percent(of_full)}" if of_full == of_full else ""
    interval = f"95% interval **{percents(both.second.ci_low, both.second.ci_high)}**{more}"
    return [f"{compared_words(of.second, both.change)}, of {both.change.n:,} questions", interval]


def with_points_of_second(
    state: "PruneState", points: pd.DataFrame, now: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the first model's points of the curve and its position, and the second's after them, named."""
    of = state.second_model
    assert of is not None
    here = now_point(of.x, of.axis, of.answers, of.mask)
    here = here[here["level"].isin(now["level"])]  # not while the hand is elsewhere

    def joined(first: pd.DataFrame, other: pd.DataFrame, series: str) -> pd.DataFrame:
        named = first.assign(series=series, model=of.names[0])
        return pd.concat([named, other.assign(series=SECOND, model=of.names[1])], ignore_index=True)

    return joined(points, of.points, "measured"), joined(now, here, "now")


def with_second_model(of: Origin, x: Experiment, second: SecondModel) -> Origin:
    """Returns the screen's origin with the second model added to its request and measurements."""
    spec = second.x.target.spec
    against = replace(request(x), against=spec.typed_beside(x.target.spec))
    measurements = {**of.measurements, "Second model": accuracies(second.x, second.mask, second.second)}
    about = f"{of.about} · compared with {spec.in_words}"
    return replace(of, requests=[against], measurements=measurements, about=about)
