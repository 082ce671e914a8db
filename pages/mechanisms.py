"""The Mechanisms screen: what in-context learning loses without each kind of heads, and how much the kinds overlap."""

import time
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from engine.measurement import Measurement
from engine.requests import CompareMechanisms
from engine.studies.mechanism_findings import finding
from engine.studies.mechanisms import N_ASKED, OF_DEMO, OF_PAIRS, Mechanisms, mechanisms
from pages.ui.controls.controls import one_of, settings_popover
from pages.ui.controls.many_tasks import local_tasks, reserve_finding, setting_of, several
from pages.ui.controls.sidebar import chosen, wait_for_model
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_model
from pages.ui.figures.empty import empty_state, reading_state
from pages.ui.figures.sheet import Sheet
from pages.ui.mechanisms import sections, vector
from pages.ui.page.address import flag, put_right
from pages.ui.page.defaults import LABELS, LABELS_HELP, RANKING_QUESTIONS
from pages.ui.page.marks import mark
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import end_run, require_frame
from pages.ui.page.work import Work, live

require_frame("pages/mechanisms.py")
TASKS_HELP = "Each is asked with examples and without; the gain from examples is averaged over them."
SHOTS_HELP = "Examples in the prompt, compared with none."
EXCLUDES, EXCLUDES_HELP = (
    "Heads of one kind alone",
    "Hollow dots: as many heads of each kind, skipping those that are also in the top of another kind.",
)
FEWER = {50: "10% and 5%", 10: "2% and 1%"}  # by the smaller share, in permille
FEWER_HELP = "The share of all heads of the model that is removed; at least one head."
FILLED = {"zero": "All output", "mean": "All but the mean", "knockout": "Induction attention"}
FILL_HELP = (
    "Of each removed head. The mean is that over training questions of the task, as in papers on kinds of heads. "
    "Induction attention: that to what followed earlier copies of a token."
)
MEASURE_HELP = f"{N_ASKED} questions per task, with and without examples, for every set of heads. In the background."
SHOWS = "You will see which kind of heads in-context learning needs, and whether the kinds are the same heads."

setup, finding_at = chosen(), reserve_finding()
every = local_tasks(setup.data_dir)
tasks_at, shots_at, excludes_at, menu_at = st.columns([12, 6, 8, 5], vertical_alignment="bottom")
box: Any = partial(tasks_at.multiselect, "Tasks", every, help=TASKS_HELP, filter_mode="contains")
first = [name for name in (OF_DEMO if setup.spec.is_demo else OF_PAIRS) if name in every]
names = several("mechanisms_tasks", every, box, first)
shots = one_of(shots_at, "Examples in the prompt", {5: "5", 1: "1"}, "mechanisms_shots", SHOTS_HELP)
put_right("mechanisms_exclusive", EXCLUDES, flag)
excludes = excludes_at.toggle(EXCLUDES, key="mechanisms_exclusive", bind="query-params", help=EXCLUDES_HELP)
menu = settings_popover(menu_at)
share = one_of(menu, "Heads removed", FEWER, "mechanisms_heads", FEWER_HELP)
fill = one_of(menu, "What is removed", FILLED, "mechanisms_fill", FILL_HELP)
labels = one_of(menu, "Labels of the examples", LABELS, "mechanisms_labels", LABELS_HELP)
if not names:
    st.info("Choose at least one task.", icon=":material/checklist:")
    mark("tasks", "none")
    end_run()
target = wait_for_model(setup, prunes=True)
since_s, setting = time.monotonic(), setting_of(setup, N_ASKED)
request = CompareMechanisms(
    **of_model(target), tasks=",".join(names), shots=shots, labels=labels, exclusive=excludes, fill=fill,
    shares=f"{share / 10:g},{2 * share / 10:g}", task_data=setup.data_dir, order_questions=RANKING_QUESTIONS,
    out="mechanisms.csv",
)  # fmt: skip
settings, manner = request.settings(), "" if labels == "true" else f", {labels} labels"
wanted = mechanisms(target, setting, settings)
work: Work[Mechanisms] = Work("mechanisms", "Kinds of heads", wanted, priority=2)
found = max((Mechanisms(settings), *work.stored()), key=lambda each: len(each.scores) + len(each.answered))

of = about(target, f"{' and '.join(names)}, {shots} shots{manner}", f"{N_ASKED} questions each", "the full model")
origin, sheet = Origin("Mechanisms", [request], {"Kinds of heads": wanted}, of), Sheet()


def draw_progress() -> None:
    """Draws the progress, or the button that starts what is missing."""
    now = work.found
    if now is not None and len(now.answered) > len(found.answered):
        st.rerun()
    if not work.line() and not found.is_complete:
        work.offer("Measure kinds of heads", "compare_arrows", MEASURE_HELP, least_s=0.0, by_size=True, type="primary")


if work.is_first_read:
    finding_at.markdown("Reading the stored results of kinds of heads.")
    with reading_state("dots", "matrix"):
        live(work.watched(), work.reading_line, since_s)
    end_run()
if setup.spec.is_demo and not found.is_complete:
    replace(work, while_seen=True).start_ahead()
if not (said := finding(found, target.shape)) and work.under_way:
    known = f"{len(found.answered)} of {settings.n_sets} sets of heads so far"
    finding_at.markdown(f"Measuring which kind of heads in-context learning needs: {known}.")
if not found.answered:
    demo = {} if setup.spec.is_demo else {"model": "demo", "precision": "int8", "mechanisms_tasks": [*OF_DEMO]}
    with empty_state("matrix", SHOWS, True, demo), st.container(width="stretch" if work.under_way else "content"):
        live(work.watched(), draw_progress, since_s)
    closing(origin, sheet)
    end_run()
live(work.watched(), draw_progress, since_s)
for kind, reason in found.failed.items():
    st.warning(f"{kind}: {reason}", icon=":material/report:")
if said:
    first, _, others = said.partition(". ")
    finding_at.markdown(f"**{first.removesuffix('.')}.** {others}")
    sheet.says.append(said)
switch = dict[str, Measurement[Any]]()
with st.container(key="kinds"):
    if len(found.answered) > 1:
        sections.losses(found, target.shape, said, sheet)
    if not presenting():  # a slide is one screen, and these are below it
        sections.kinds(found, target.shape, sheet)
        switch = vector.draw(target, sheet, since_s)
closing(replace(origin, measurements={**origin.measurements, **switch}), sheet)
