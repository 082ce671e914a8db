"""The Mechanisms screen: what in-context learning loses without each kind of heads, and how much the kinds overlap."""

import time
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from engine.measurement import Measurement
from engine.requests import CompareMechanisms
from engine.studies.mechanism_findings import finding, finding_of_scores
from engine.studies.mechanisms import KINDS, N_ASKED, OF_DEMO, OF_PAIRS, SOON, Mechanisms, mechanisms, scores_of_kinds
from pages.ui.controls.controls import one_of, settings_popover
from pages.ui.controls.many_tasks import QUICK, OtherSettings, local_tasks, reserve_finding, setting_of, several
from pages.ui.controls.sidebar import chosen, wait_for_model
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_model
from pages.ui.figures.empty import empty_state, reading_state
from pages.ui.figures.sheet import Sheet
from pages.ui.mechanisms import sections, vector
from pages.ui.page.address import MOST, flag, number_field, put_right
from pages.ui.page.defaults import LABELS, LABELS_HELP, RANKING_QUESTIONS
from pages.ui.page.marks import mark
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import end_run, first_figure_s, require_frame
from pages.ui.page.work import Work, live

require_frame("pages/mechanisms.py")
TASKS_HELP = "Each is asked with examples and without; the gain from examples is averaged over them."
KINDS_HELP = "Of heads, each by its own score."
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
QUESTIONS_HELP = "Of each task's validation split, for every set of heads. More of them, narrower intervals."
MEASURE_HELP = "Every question with and without examples, for every set of heads. In the background."
SCORING = "Scoring heads: {} of {} kinds so far."
REMOVE = "Not measured yet: which of these kinds in-context learning needs."
UNKNOWN = "Which kind of heads in-context learning needs here is not measured yet."
SHOWS = "You will see which kind of heads in-context learning needs, and whether the kinds are the same heads."

setup, finding_at = chosen(), reserve_finding()
every = local_tasks(setup.data_dir)
tasks_at, shots_at, excludes_at, menu_at = st.columns([12, 6, 8, 5], vertical_alignment="bottom")
box: Any = partial(tasks_at.multiselect, "Tasks", every, help=TASKS_HELP, filter_mode="contains")
opens_with = [name for name in (OF_DEMO if setup.spec.is_demo else OF_PAIRS) if name in every]
names = several("mechanisms_tasks", every, box, opens_with)
shots = one_of(shots_at, "Examples in the prompt", {5: "5", 1: "1"}, "mechanisms_shots", SHOTS_HELP)
put_right("mechanisms_exclusive", EXCLUDES, flag)
excludes = excludes_at.toggle(EXCLUDES, key="mechanisms_exclusive", bind="query-params", help=EXCLUDES_HELP)
menu = settings_popover(menu_at)
judges = int(
    number_field(menu, "Questions", (1, MOST), "mechanisms_limit", value=N_ASKED, step=16, help=QUESTIONS_HELP)
)
share = one_of(menu, "Heads removed", FEWER, "mechanisms_heads", FEWER_HELP)
fill = one_of(menu, "What is removed", FILLED, "mechanisms_fill", FILL_HELP)
labels = one_of(menu, "Labels of the examples", LABELS, "mechanisms_labels", LABELS_HELP)
chosen_kinds = several("mechanisms_kinds", [*KINDS], partial(menu.multiselect, "Kinds", [*KINDS], help=KINDS_HELP))
kinds = [kind for kind in KINDS if kind in chosen_kinds]
if not names or not kinds:
    st.info(f"Choose at least one {'kind' if names else 'task'}.", icon=":material/checklist:")
    mark("tasks", "none")
    end_run()
target = wait_for_model(setup, prunes=True)
since_s, setting = time.monotonic(), setting_of(setup, judges)
request = CompareMechanisms(
    **of_model(target), tasks=",".join(names), shots=shots, labels=labels, exclusive=excludes, fill=fill,
    shares=f"{share / 10:g},{2 * share / 10:g}", task_data=setup.data_dir, limit=judges,
    order_questions=RANKING_QUESTIONS, kinds=",".join(kinds), out="mechanisms.csv",
)  # fmt: skip
settings, manner = request.settings(), "" if labels == "true" else f", {labels} labels"


wanted = mechanisms(target, setting, settings)
work: Work[Mechanisms] = Work("mechanisms", "Kinds of heads", wanted, priority=2)
found = max((Mechanisms(settings), *work.stored()), key=lambda each: len(each.scores) + len(each.answered))
scores = [
    Work(f"scores of {len(kinds)} kinds", "Scores of heads", of_kinds, priority=3, while_seen=True)
    for kinds in dict.fromkeys((settings.kinds, tuple(kind for kind in settings.kinds if kind in SOON)))
    if kinds
    for of_kinds in [scores_of_kinds(target, setting, replace(settings, kinds=kinds))]
]
unscored = {kind for each in scores if (now := each.found) is not None for kind in now.failed}
scored = [each.scores for each in (found, *(work.found for work in scores)) if each is not None]
found = replace(found, scores={kind: each[kind] for kind in settings.kinds for each in scored if kind in each})
n_other, kinds_other = (QUICK, SOON) if judges > QUICK else (N_ASKED, tuple(KINDS))
look = OtherSettings(
    work,
    mechanisms(target, replace(setting, n_questions=n_other), replace(settings, kinds=kinds_other)),
    f"{len(kinds_other)} kinds, {n_other} questions",
    {"mechanisms_limit": n_other, "mechanisms_kinds": [*kinds_other]},
    n_other == QUICK,
)

of = about(target, f"{' and '.join(names)}, {shots} shots{manner}", f"{judges:,} questions each", "the full model")
origin, sheet = Origin("Mechanisms", [request], {"Kinds of heads": wanted}, of), Sheet()


def draw_progress() -> None:
    """Draws the progress, or the buttons that start what is missing, a quick look at it, or after that more of it."""
    now = work.found
    if now is not None and (len(now.answered) > len(found.answered) or len(now.scores) > len(found.scores)):
        st.rerun()
    if work.line():
        return
    if found.is_complete and not (setup.spec.is_demo or look.is_quick):
        look.offer()
    if not found.is_complete:
        with st.container(horizontal=True):
            label, icon = f"Measure {len(kinds)} kind{'s' * (len(kinds) > 1)}", "compare_arrows"
            work.offer(label, icon, MEASURE_HELP, least_s=0.0, by_size=True, type="primary")
            if look.is_quick and not (setup.spec.is_demo or found.answered):
                look.offer()


def start_scores() -> Work[Mechanisms] | None:
    """Returns the first of `scores` that is read, measured, or started here, as it may be measured without a click."""
    begun = [each for each in scores if (job := each.now()) is not None and job.state != "done"]
    if begun or names != opens_with:
        return begun[0] if begun else None
    for each in scores:
        each.stored()
        takes_s = each.takes_s(by_size=True) if each.is_read else None
        if takes_s is not None and takes_s <= first_figure_s():
            each.start()
        if not each.is_read or each.under_way:
            return each
    return None


def draw_unmeasured() -> None:
    """Draws the screen before any heads are removed: the scores of heads so far, and below them the buttons; without
    scores what the screen will show."""
    scoring = None if work.under_way or setup.spec.is_demo else start_scores()
    is_scoring = scoring is not None and (not scoring.is_read or scoring.under_way)
    if not found.scores and not is_scoring:
        demo = {} if setup.spec.is_demo else {"model": "demo", "precision": "int8", "mechanisms_tasks": [*OF_DEMO]}
        with empty_state("matrix", SHOWS, True, demo), st.container():
            live(watched, draw_progress, since_s)

    def draw_scoring() -> None:
        now = scoring.found if scoring is not None else None
        if now is not None and len(now.scores) > len(found.scores):
            st.rerun()
        if scoring is not None:
            scoring.line()

    if scoring is not None:
        live(scoring.watched(), draw_scoring, since_s)
    words = finding_of_scores(found, target.shape)
    if found.scores or is_scoring:
        awaited = [kind for kind in kinds if is_scoring and kind not in found.scores and kind not in unscored]
        sections.scores(found, target.shape, sheet, awaited)
        sheet.says.extend(filter(None, [words]))
        st.markdown(REMOVE)
        live(watched, draw_progress, since_s)
    if not work.under_way:
        finding_at.markdown(SCORING.format(len(found.scores), len(kinds)) if is_scoring else words or UNKNOWN)


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
watched = [*work.watched(), *([] if setup.spec.is_demo else look.slots())]
if not found.answered:
    draw_unmeasured()
    closing(origin, sheet)
    end_run()
live(watched, draw_progress, since_s)
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
