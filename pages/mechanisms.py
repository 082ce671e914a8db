"""The Mechanisms screen: what in-context learning loses without each kind of heads, and how much the kinds overlap."""

import time
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from engine.requests import CompareMechanisms
from engine.studies.mechanism_findings import finding
from engine.studies.mechanisms import N_ASKED, OF_DEMO, OF_PAIRS, Mechanisms, mechanisms
from engine.studies.removal import HeadSet
from pages.ui.controls.controls import one_of, settings_popover
from pages.ui.controls.heads import open_prune
from pages.ui.controls.many_tasks import local_tasks, reserve_finding, setting_of, several
from pages.ui.controls.sidebar import chosen, wait_for_model
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_model
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.empty import empty_state
from pages.ui.figures.sheet import Sheet
from pages.ui.mechanisms import charts, tables
from pages.ui.page.address import flag, put_right
from pages.ui.page.defaults import RANKING_QUESTIONS
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
PRUNE_HELP = "On Prune: accuracy without the top heads of this kind."
FEWER = {50: "10% and 5%", 10: "2% and 1%"}  # by the smaller share, in permille
FEWER_HELP = "The share of all heads of the model that is removed; at least one head."
FILLED = {"zero": "All output", "mean": "All but the mean", "knockout": "Induction attention"}
FILL_HELP = (
    "Of each removed head. The mean is that over training questions of the task, as in papers on kinds of heads. "
    "Induction attention: that to what followed earlier copies of a token."
)
MEASURE_HELP = f"{N_ASKED} questions per task, with and without examples, for every set of heads. In the background."
SHOWS = "You will see which kind of heads in-context learning needs, and whether the kinds are the same heads."
CAPTION = "Orange: clearly more than all random draws. Dashed: all of the gain; beyond it, examples hurt."
HOLLOW = "Hollow: heads of one kind alone. Orange: clearly more than all random draws. Dashed: all."
LOST_HELP = (
    "The gain is accuracy with examples minus accuracy without. Dot and line: how much of it is lost without the top "
    "heads of a kind, with its 95% interval. Gray dots: without as many random heads, one dot for each draw."
)
SHARED_HELP = "Heads in the top 10% of both kinds; Spearman's rank correlation of their scores under the pointer."
BEST_HELP = "The ten best heads by the score of each kind. Layer: of the top 10%, on average."

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
if not names:
    st.info("Choose at least one task.", icon=":material/checklist:")
    mark("tasks", "none")
    end_run()
target = wait_for_model(setup, prunes=True)
since_s, setting = time.monotonic(), setting_of(setup, N_ASKED)
request = CompareMechanisms(
    **of_model(target), tasks=",".join(names), shots=shots, exclusive=excludes, fill=fill,
    shares=f"{share / 10:g},{2 * share / 10:g}", task_data=setup.data_dir, order_questions=RANKING_QUESTIONS,
    out="mechanisms.csv",
)  # fmt: skip
settings = request.settings()
wanted = mechanisms(target, setting, settings)
work: Work[Mechanisms] = Work("mechanisms", "Kinds of heads", wanted, priority=2)
found = max((Mechanisms(settings), *work.stored()), key=lambda each: len(each.scores) + len(each.answered))

of = about(target, f"{' and '.join(names)}, {shots} shots", f"{N_ASKED} questions each", "the full model")
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
rows = pd.DataFrame(found.rows(target.shape))
if said:
    finding_at.markdown(said)
    sheet.says.append(said)
if len(rows):
    sheet.tables["Sets of heads"] = rows
    shown, words = tables.chart_rows(rows), said or f"{len(rows)} sets of heads so far"
    sides = st.container(key="wraps charts").columns([8, 5], gap="medium")
    for at, (of_share, picture) in zip(sides, charts.lost(shown, found.gain).items(), strict=False):
        with at:
            st.subheader(of_share, help=LOST_HELP)
            sheet.draw(of_share, picture, f"mechanisms_lost {of_share}", words)
    st.caption(HOLLOW if excludes else CAPTION)
    tops = {
        each.kind: HeadSet(each.heads) for each in found.answered if each.kind in found.scores and not each.excludes
    }
    with st.container(horizontal=True, gap="xsmall"):
        for kind in () if presenting() else sorted(tops, key=shown["kind"].tolist().index):
            if st.button(f"Prune {kind} heads", help=PRUNE_HELP):
                open_prune(tops[kind].mask(target.shape).text())
kinds = sheet.tables["Heads of each kind"] = tables.kind_rows(found, target.shape)
table_at, shared_at = st.container(key="wraps kinds").columns([8, 5], gap="medium")
table_at.subheader("Heads of each kind", help=BEST_HELP)
titles = {"kind": "Kind", "layer": "Mean layer", "heads": "Best heads"}
draw_table(kinds, titles, "The ten best heads of each kind", table_at)
shared = tables.overlap_rows(found, target.shape)
if len(shared):
    sheet.tables["Overlap of kinds"] = shared
    shared_at.subheader(f"Shared, of the top {shared['n'].iloc[0]}", help=SHARED_HELP)
    sheet.draw(
        "Overlap of kinds", charts.shared(shared), "mechanisms_shared", "How many heads two kinds share", shared_at
    )
closing(origin, sheet)
