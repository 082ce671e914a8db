"""The tab of many tasks: how far their rankings agree, two of them head by head, and what another's order costs."""

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from engine.measurement import Measurement
from engine.models.session import Target
from engine.requests import Correlate
from engine.studies.surveys import survey
from engine.views.correlation import pair_in_words, rankings_in_words, rankings_part, ranks_part
from engine.views.words import percent
from pages.ui.controls.controls import one_listed, one_of
from pages.ui.controls.many_tasks import FirstMeasured, choose_tasks, show_failed, survey_line
from pages.ui.controls.study import Study
from pages.ui.downloads.actions import draw_actions
from pages.ui.downloads.origin import Origin, about, of_grid, of_model, tasks_in_words
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.empty import empty_state
from pages.ui.figures.sheet import Sheet
from pages.ui.heads.map import clicked_on
from pages.ui.heads.rankings import EVEN, ORDERED, PAPERS, TITLES, RankingReader
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.page.screens import draw_headline
from pages.ui.page.tables import plain
from pages.ui.page.widget_writes import write
from pages.ui.page.work import live
from pages.ui.sections.section import draw_part

WHAT, MEASURE, SIDES = "heads_score", "heads_measure", ("heads_a", "heads_b")
WHAT_HELP = (
    "Gradient: |z · dLoss/dz| summed over positions, all layers divided by all positions; the default order of Prune. "
    "Bansal et al.: as in their paper (2023), the last layer divided by the answer's tokens alone. Removal and FFNs: "
    "accuracy lost when just that one is pruned. With few questions, most tie: their order then says little."
)
SHORT = {"srcc": "All layers", "within": "Within a layer", "cost": "Points lost", "overlap": "Top 30%"}
MEASURE_HELP = (
    "All layers: Spearman's rank correlation of all scores, which depth alone can make high. Within a layer: that of "
    "one layer's heads, its mean over layers. Points lost: what pruning a task by the order of another costs, against "
    "its own order, on validation questions. Top 30%: of the most important 30% of one ranking, the share that is "
    "among those of the other."
)
SIDES_HELP = "One dot per head or FFN. A click in the matrix chooses the two."
COSTS_HELP = "Accuracy of each task when heads are pruned by the ranking of another, against its own ranking."
SHOWS = "You will see how far these tasks rank heads alike, and any two rankings head by head."


def draw_across(asks: Study, wait: Callable[[], Target], since_s: float) -> None:
    """Draws the tab of a study; `wait` returns the model once it is known, and is called after the controls are
    drawn."""
    tasks_at, what_at = st.columns([9, 3], vertical_alignment="bottom")
    tasks = choose_tasks(tasks_at, asks)
    title = one_listed(what_at, "Score", list(TITLES.values()), WHAT, help=WHAT_HELP)
    what = {each: name for name, each in TITLES.items()}[title]
    of = RankingReader(asks, wait(), tasks, what)
    of.start()
    labels, noun = [of.label(task) for task in tasks], "FFN" if what == "ffns" else "head"
    sheet, rankings = Sheet(), of.rankings
    if len(rankings.scores) < 2:
        with empty_state("matrix", SHOWS, of.work.is_read, key="empty rankings"), st.container():
            _draw_work(of, since_s)
        draw_headline("heads", "")
    else:
        _draw_work(of, since_s)
        _draw_rankings(of, labels, noun, sheet, since_s)
    show_failed(of.found.failed)
    request = Correlate(
        **of_model(of.target), **of_grid(tasks), task_data=asks.data_dir, score=what, out="correlations.csv"
    )
    words = about(of.target, tasks_in_words(tasks), f"{RANKING_QUESTIONS} train questions each", "the full model")
    measurements: dict[str, Measurement[Any]] = {TITLES[what]: survey(of.target, of.setting, tuple(tasks), what)}
    if of.has_costs:
        measurements[ORDERED] = of.costs
    requests = [request, *(of.costs_requests if rankings.costs else [])]
    draw_actions(Origin("Heads", requests, measurements, words), sheet)


def _draw_work(of: RankingReader, since_s: float) -> None:
    """Draws the progress of the rankings, or the button that measures what is missing."""
    first = FirstMeasured("Measure these rankings", "primary")
    works = [of.work, *([of.first] if of.what in (EVEN, PAPERS) else [])]

    def draw() -> None:
        if not works[-1].under_way or works[-1] is of.work or not works[-1].line():
            survey_line(of.work, len(of.tasks), of.found, since_s, first)

    live([slot for work in works for slot in work.watched()], draw, since_s)


def _draw_rankings(of: RankingReader, labels: list[str], noun: str, sheet: Sheet, since_s: float) -> None:
    rankings = of.rankings
    matrix_at, pair_at = st.columns([6, 5], gap="large")
    with matrix_at:
        measures = {each: title for each, title in SHORT.items() if each != "cost" or of.has_costs}
        measures = {each: title for each, title in measures.items() if each != "within" or noun == "head"}
        measure = one_of(st.container(), "Measure", measures, MEASURE, MEASURE_HELP, label_visibility="collapsed")
    with pair_at:
        a, b = _choose_pair(rankings.pairs("srcc"), labels)
        _draw_pair(of, a, b, noun, sheet)
    finding = rankings_in_words(rankings, measure, noun)
    draw_headline("heads", finding)
    sheet.says.insert(0, finding)
    with matrix_at:
        if rankings.pairs(measure):
            part = rankings_part(rankings, labels, measure, (a, b), "pair")
            picture, key = sheet.add_part(part), f"heads_matrix {measure}"
            assert picture is not None
            draw_chart(picture, key, finding, on_select=partial(_clicked, key), selection_mode="pair")
        if of.has_costs and not rankings.costs:
            _draw_costs_work(of, since_s)


def _choose_pair(pairs: dict[tuple[str, str], float], labels: list[str]) -> tuple[str, str]:
    """Draws the choice of two rankings: at first the two that agree least."""
    first = next(iter(pairs), (labels[0], labels[1]))
    kwargs: dict[str, Any] = {"label_visibility": "collapsed"}
    one_at, other_at = st.columns(2)
    a = one_listed(one_at, "Ranking", labels, SIDES[0], index=labels.index(first[0]), help=SIDES_HELP, **kwargs)
    b = one_listed(other_at, "and ranking", labels, SIDES[1], index=labels.index(first[1]), **kwargs)
    return a, b


def _draw_pair(of: RankingReader, a: str, b: str, noun: str, sheet: Sheet) -> None:
    """Draws what two rankings have in common, and each component's rank in both."""
    if a == b:
        st.caption("Choose two rankings.")
        return
    said = pair_in_words(of.rankings, a, b, noun)
    st.markdown(said)
    sheet.says.append(f"{plain(a)}; {plain(b)}. {said}")
    if {a, b} <= of.rankings.scores.keys():
        draw_part(ranks_part(of.rankings, a, b, noun), "heads_pair", said, sheet)


def _draw_costs_work(of: RankingReader, since_s: float) -> None:
    """Draws the progress of the costs, or the button that measures them."""
    work = of.costs_work

    def draw() -> None:
        if not work.line() and work.is_read:
            label = f"Prune {percent(of.permille / 1000, 0)} by each of {len(of.judged)} rankings"
            work.offer(label, "timeline", COSTS_HELP, 0.0, by_size=True)

    live(work.watched(), draw, since_s)


def _clicked(key: str) -> None:
    cell = clicked_on(key, "pair")
    two = cell.get("a"), cell.get("b")
    if None not in two and two[0] != two[1]:
        for side, label in zip(SIDES, two, strict=True):
            write(side, label)
