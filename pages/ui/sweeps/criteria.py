"""The section of the Sweeps screen that compares criteria of the highlighted task: their selection, the work that
measures them, and charts and tables of the results."""

import time
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
import streamlit as st

from engine.importance.rankings import CRITERIA, SLOW
from engine.importance.rankings_of import OF_ONE_TASK
from engine.measurement import Measurement
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.requests import CompareCriteria
from engine.shapes import ModelShape
from engine.studies.compare import ALONG, RANDOM, SEEDS, ComparedCriteria, Comparing, areas, comparison
from engine.studies.surveys import StudySettings, in_words
from pages.ui.controls.controls import one_listed, one_of
from pages.ui.controls.many_tasks import setting_of, several, show_failed
from pages.ui.controls.sidebar import Setup, wait_for_model
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_model, of_task, percent, tasks_in_words
from pages.ui.figures.sheet import Sheet
from pages.ui.page.address import MOST, number_field
from pages.ui.page.defaults import NOUNS, Axis
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.work import Work, live
from pages.ui.sweeps import criteria_charts, criteria_tables

SECTION, TITLE, SLOT = "compare", "Compare criteria", "sweep compare"
OPTIONS = [*dict.fromkeys((*CRITERIA, *(name for name in OF_ONE_TASK if name != RANDOM)))]
AT_FIRST = [name for name in CRITERIA if name not in SLOW]
AXES = {"heads": "Heads", "ffns": "FFNs", "both": "Both"}
STEPS = {"every 10%": 100, "every 20%": 200, "every 25%": 250, "every 5%": 50}
MOST_SEEDS = 20
CRITERIA_HELP = (
    "What scores least goes first. "
    + " ".join(f"**{each.label}**: {each.help}. It takes {each.cost}." for each in CRITERIA.values())
    + " Scores are measured on train questions, accuracy on others."
)
AXIS_HELP = "The components pruned along the chart. Both: the same share of heads and of FFNs."
SEEDS_HELP = "Seeded random orders, which every criterion has to beat: the band is their range."
AREA_HELP = (
    "Mean right: accuracy averaged over the levels, the area under the curve (trapezoids). Intervals: 2,000 paired "
    "bootstrap draws over the questions, the same ones for all criteria; the difference also over the random orders. "
    "Clearly: the 95% interval of the difference leaves 0 out. Of many verdicts at 5% one may be wrong."
)
AGREEMENT_HELP = (
    "Spearman's rank correlation of the scores over the same parts; of rankings without scores, of the places in the "
    "order. Random: the first of its orders."
)
MEASURE_HELP = "In the background. Finished work is stored, even if you leave this page."


def draw_section(setup: Setup, task: TaskSpec, n_questions: int, at: DeltaGenerator) -> None:
    """Draws the section, from its controls, most of them in the row `at`, to its downloads."""
    comparing = _choose(at, st.container(), task)
    if comparing is None:
        return
    target, since_s = wait_for_model(setup, prunes=True), time.monotonic()
    of, drawn = CriteriaView(setting_of(setup, n_questions), target, comparing), Sheet()
    of.work.stored()
    live(of.work.watched(), partial(_draw_so_far, of, drawn), since_s)
    questions, pruned = f"{n_questions:,} questions", f"pruned: {ALONG[comparing.axis]}"
    subject = about(target, tasks_in_words([task]), questions, pruned)
    closing(Origin("Sweeps", [of.request], {TITLE: of.measurement}, subject), drawn)


def _choose(at: DeltaGenerator, where: DeltaGenerator, task: TaskSpec) -> Comparing | None:
    """Draws the choice of what to compare, kept in the address: the criteria at `where`, the rest in a row; None if no
    criterion is chosen, which is said there."""
    named = {name: criteria_tables.label(name) for name in OPTIONS}
    more = {"format_func": named.__getitem__, "help": CRITERIA_HELP}
    draw = partial(where.multiselect, "Criteria", OPTIONS, **more)
    chosen = several("sweeps_criteria", OPTIONS, draw, AT_FIRST, named)
    axis = one_of(at, "Prune", AXES, "sweeps_along", AXIS_HELP)
    help = "Levels at which accuracy is measured; all of them count in the area."
    step = STEPS[one_listed(at, "Levels", STEPS, "sweeps_step", width=150, help=help)]
    more = {"value": SEEDS, "step": 1, "width": 130, "help": SEEDS_HELP}
    seeds = int(number_field(at, "Random orders", (1, MOST_SEEDS), "sweeps_orders", **more))
    if not chosen:
        where.info("Choose at least one criterion.", icon=":material/checklist:")
        return None
    return Comparing(task, tuple(chosen), axis, tuple(range(0, 1001, step)), seeds)


@dataclass(frozen=True)
class CriteriaView:
    """A comparison: its criteria, its model and its questions."""

    setting: StudySettings
    target: Target
    comparing: Comparing

    @property
    def work(self) -> Work[ComparedCriteria]:
        """Returns the work that measures it."""
        return Work(SLOT, TITLE, self.measurement, priority=2)

    @property
    def measurement(self) -> Measurement[ComparedCriteria]:
        return comparison(self.target, self.setting, self.comparing)

    @property
    def request(self) -> CompareCriteria:
        """Returns the equivalent request."""
        of, setting = self.comparing, self.setting
        return CompareCriteria(
            **of_model(self.target), **of_task(of.task), task_data=setting.data_dir, limit=setting.n_questions or MOST,
            order_questions=setting.n_ranking or MOST, criteria=",".join(of.criteria), axis=of.axis,
            levels=",".join(map(percent, of.levels)), random_orders=of.n_seeds, out="criteria.csv",
        )  # fmt: skip


def _draw_so_far(of: CriteriaView, sheet: Sheet) -> None:
    work, comparing = of.work, of.comparing
    found = max((ComparedCriteria(comparing), *work.stored()), key=lambda each: len(each.curves))
    n = len(comparing.criteria) + comparing.n_seeds - len(found.failed)
    if not work.line() and len(found.curves) < n:
        label = f"Measure {n - len(found.curves)} curves"
        work.offer(label, "timeline", MEASURE_HELP, type="primary")
    if found.curves and len(found.curves) < n:
        st.caption(f"{len(found.curves)} of {n} curves measured")
    show_failed({replace(comparing.task, name=name): reason for name, reason in found.failed.items()})
    if found.curves:
        _draw(found, of.target.shape, sheet)


def _draw(found: ComparedCriteria, shape: ModelShape, sheet: Sheet) -> None:
    comparing, ranked = found.comparing, areas(found)
    along = ALONG[comparing.axis]
    lines, said = criteria_tables.lines(found), criteria_tables.in_words(ranked, found.n, along)
    st.markdown(said)
    sheet.draw("Criteria compared", criteria_charts.curves(lines, comparing.axis), f"{SLOT} curves", said)
    of = f"{in_words(comparing.task)}; {found.n:,} questions; pruned: {along}."
    st.caption(f"{of} A click in the legend brings a line to the front, with Shift several.")
    sheet.tables["Criteria, accuracies"] = criteria_tables.accuracies(found)
    if ranked:
        table = sheet.tables["Criteria, areas"] = criteria_tables.area_table(ranked)
        st.subheader("Area under each curve", help=AREA_HELP)
        shown = criteria_tables.area_words(table)
        st.dataframe(shown, hide_index=True, height="content", alt="Areas, intervals and verdicts")
    sheet.tables["Criteria, scores"] = criteria_tables.scores_table(found, shape)
    _draw_agreement(found, sheet)


def _draw_agreement(found: ComparedCriteria, sheet: Sheet) -> None:
    cells: dict[Axis, pd.DataFrame] = {
        axis: each for axis in found.comparing.axes if len(each := criteria_tables.agreement_cells(found, axis))
    }
    if not cells:
        return
    st.subheader("How much the criteria agree", help=AGREEMENT_HELP)
    places = st.container(key=f"wraps {SLOT} agreement").columns(max(2, len(cells)), gap="medium")
    for (axis, frame), at in zip(cells.items(), places, strict=False):
        name = f"Agreement of criteria, {NOUNS[axis]}"
        sheet.tables[name] = frame
        words = criteria_tables.agreement_in_words(frame)
        with at:
            st.markdown(f"{NOUNS[axis][:1].upper()}{NOUNS[axis][1:]}. {words}")
            sheet.draw(name, criteria_charts.agreement(frame), f"{SLOT} agreement {axis}", words)
