"""The Sweeps screen: accuracy over many tasks, shot counts, levels and rankings, measured in the background."""

import time
from dataclasses import replace
from typing import Any

import streamlit as st

from engine.importance.rankings import CRITERIA
from engine.measurement import Measurement
from engine.studies.study import pool_of
from engine.studies.sweeps import Swept, sweep
from pages.ui.controls.controls import choose_level, one_listed, one_of, settings_popover
from pages.ui.controls.first_views import JUDGES, transfer_percent
from pages.ui.controls.many_tasks import (
    QUICK,
    OtherSettings,
    choose_tasks,
    demo_view,
    setting_of,
    show_failed,
    start_first_view,
)
from pages.ui.controls.sidebar import chosen, wait_for_model
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_model, tasks_in_words
from pages.ui.figures.empty import empty_state
from pages.ui.figures.published import of_tasks
from pages.ui.figures.sheet import Sheet
from pages.ui.page.address import MOST, number_field, one_among, put_right
from pages.ui.page.defaults import AXES, ORDER
from pages.ui.page.marks import mark
from pages.ui.page.runtime import end_run, require_frame
from pages.ui.page.work import Work, live
from pages.ui.sweeps import criteria
from pages.ui.sweeps.plans import SECTIONS, has_curve, points_of, requests_of
from pages.ui.sweeps.sections import SHOWS, draw_section, finding

require_frame("pages/sweeps.py")
HELP = (
    "Heads, FFNs: each task pruned by its own scores. Heads and FFNs: every pair of levels. Transfer: each task "
    "pruned by each other's ranking. Unseen tasks: pruned by a ranking without them. Rescored after each step: "
    "importance is measured again before each step. Compare criteria: the highlighted task pruned by several rankings, "
    "and at random."
)
FRONT_HELP = "The boldest of the curves. “Rescored after each step” and “Compare criteria” measure this task alone."
JUDGES_HELP = "Of each task's validation split. More of them, narrower intervals."
SETTINGS_HELP = "Questions per task."
MEASURE_HELP = "In the background. Finished work is stored, even if you leave this page."
ORDERS = {CRITERIA[ORDER].heads: CRITERIA[ORDER].label, "heads": "Bansal et al."}
ORDER_HELP = "The gradient score with one divisor for all layers, or as Bansal et al. (2023) published it."
NAMES = {**SECTIONS, criteria.SECTION: criteria.TITLE}
STARTS = {"heads": False, "transfer": True}  # measured without a click on the demo model: whether in a few seconds

setup, finding_at = chosen(), st.container()
tasks = choose_tasks("sweeps", st.container(), setup)
row = st.container(horizontal=True, vertical_alignment="bottom", gap="small")  # wraps in a narrow window
put_right("sweeps_what", "Sweep", one_among(NAMES.values()))
shown: dict[str, Any] = {"format_func": NAMES.__getitem__, "bind": "query-params", "width": 230, "help": HELP}
section = row.selectbox("Sweep", list(NAMES), key="sweeps_what", **shown)
names = list(dict.fromkeys(task.name for task in tasks))
front_name = one_listed(row, "Highlighted task", names, "sweeps_front", width=200, help=FRONT_HELP)
more_at = settings_popover(row, SETTINGS_HELP)
judges = number_field(more_at, "Questions", (1, MOST), "sweeps_limit", value=JUDGES, step=16, help=JUDGES_HELP)
order = one_of(more_at, "Heads by", ORDERS, "sweeps_order", ORDER_HELP)
front = max((task for task in tasks if task.name == front_name), key=lambda task: task.shots)
if section == criteria.SECTION:
    criteria.draw_section(setup, front, int(judges), row)
    end_run()
permille = 500
if section == "transfer":
    help = "By each task's ranking in turn."
    first = transfer_percent(setup.spec.is_demo)
    permille = choose_level("sweeps", st.columns(2)[0], "level", AXES["heads"], help, first)

target = wait_for_model(setup, prunes=True)
asked = {**of_model(target), "task_data": setup.data_dir, "limit": int(judges), "head_score": order}
requests = requests_of(section, tasks, front, permille, asked)
since_s, points = time.monotonic(), points_of(requests)
setting = replace(setting_of(setup, int(judges)), heads_by=order)


def measured(n_questions: int) -> Measurement[Swept]:
    """Returns the measurement over so many questions per task."""
    return sweep(target, replace(setting, n_questions=n_questions), points, pool_of(names))


wanted = measured(int(judges))
work = Work(f"sweep {section}", SECTIONS[section], wanted, priority=2)
n_other = QUICK if judges > QUICK else JUDGES
look = OtherSettings(work, measured(n_other), f"{n_other} questions", {"sweeps_limit": n_other}, n_other == QUICK)
others = work.noticed()
stored = work.stored(others)
if section in STARTS and not any(len(each.rows) + len(each.failed) >= len(points) for each in stored):
    start_first_view(setup, tasks, [work], is_quick=STARTS[section])


def _draw_work(missing: int, is_empty: bool = False) -> None:
    """Draws the progress, or the button that measures what is missing; next to it, if nothing is measured, that of a
    quick look, and after a quick look that of more questions."""
    if work.line():
        return
    if missing and not work.is_read:
        work.reading_line()
        return
    if missing:
        work.offer(f"Measure {missing:,} accuracies", "timeline", MEASURE_HELP, 0.0, by_size=True, type="primary")
    if not setup.spec.is_demo and (is_empty if look.is_quick else not missing):
        look.offer()


def draw() -> None:
    """Draws the results so far and the progress."""
    known = (Swept(), *stored, work.found or Swept())
    found = max(known, key=lambda each: (len(each.rows), len(each.failed)))
    measured = {row.point for row in found.rows}
    possible = [point for point in points if point.task not in found.failed]
    missing = len({*possible} - measured)
    inner = any({row.point.heads_permille, row.point.ffns_permille} - {0, 1000} for row in found.rows)
    is_begun = work.under_way or has_curve(measured, possible)  # a drag on Prune leaves a few points of a curve
    if missing and not (inner and is_begun):  # nothing and everything pruned is known from other rankings, too
        demo = demo_view("sweeps", setup) if section == "heads" else {}  # whose results come with the app
        demo |= {"sweeps_limit": JUDGES} if demo else {}
        with empty_state("curves", f"You will see {SHOWS[section]}.", work.is_read, demo):
            _draw_work(missing, is_empty=True)
        show_failed(found.failed)
        mark("sweep", "missing", section=section, known=0)
        return
    _draw_work(missing)
    if found.rows and missing and not work.under_way:
        st.caption(f"{len(found.rows):,} of {len(points):,} measured")
    show_failed(found.failed)
    draw_section(section, found.rows, front, permille, published, sheet)
    mark("sweep", "missing" if missing else "measured", section=section, known=len(found.rows))


known = max((each.rows for each in stored), key=len, default=())
finding_at.markdown(said := finding(section, known, permille))
published = of_tasks(target, tasks)
sheet = Sheet(says=[said])
live([*work.watched(), *([] if setup.spec.is_demo else look.slots())], draw, since_s)
if not any(len(each.rows) == len(points) for each in stored):
    work.follow(others)  # another process may measure the rest, such as `headroom sweep`
of = about(target, tasks_in_words(tasks), f"{int(judges):,} questions each", f"pruned: {SECTIONS[section].lower()}")
closing(Origin("Sweeps", requests, {SECTIONS[section]: wanted}, of), sheet)
