"""The Induction screen: which heads match prefixes and copy, and what the model can do without them."""

import time
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from engine.heads.induction import INDUCTION_FROM, SCORES, induction
from engine.measurement import Measurement
from engine.models.masks import parse_mask
from engine.requests import ScoreInduction
from engine.studies.removal import without_heads
from pages.ui.controls import carried
from pages.ui.controls.controls import one_of, settings_popover, type_mask
from pages.ui.controls.sidebar import wait_for_model
from pages.ui.controls.study import chosen
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_model
from pages.ui.figures import induction_scores
from pages.ui.figures.sheet import Sheet
from pages.ui.induction import charts, overlap, sections
from pages.ui.induction.ablation import N_QUESTIONS, choose_task, draw_effect, effect_in_words, so_far, work_of
from pages.ui.induction.selection import chart_with_heads, draw_actions, selected_heads
from pages.ui.induction.tables import corner_in_words, finding, finding_help, head_scores, in_words
from pages.ui.page.marks import mark
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import errors_shown, require_frame, session
from pages.ui.page.tables import mask_in_words, whole_percent
from pages.ui.page.work import Work, live, with_loading_s

require_frame("pages/induction.py")
MAP_HELP = "Colors the map. Click a head there, or a dot, to select it; with Shift, more than one."
BY_WEIGHTS = {"ov_eigen": "OV: copying by weights", "qk_trace": "QK: matching by weights"}
SCATTER_HELP = "One dot per head. Top right: heads that match prefixes and copy."

setup = chosen()
finding_at, row = st.container(gap="xsmall"), st.container(horizontal=True, vertical_alignment="bottom")
named = {each: charts.TITLES[each] for each in SCORES} | BY_WEIGHTS
score = one_of(row, "Score on the map", named, "induction_score", MAP_HELP, default="prefix_matching")
settings_at = settings_popover(row)
task = choose_task(setup, settings_at)
typed = type_mask("induction_mask", settings_at)

target = wait_for_model(setup)
with errors_shown():
    mask = parse_mask(typed, target.shape)
with row:
    carried.hand_on("induction", target.shape, mask, st.container(width="content"))
since_s = time.monotonic()
scores = induction(target)
found = scores.stored(session())
if found is None:
    takes = partial(with_loading_s, target, scores.left(session()))
    found = sections.await_scores(Work("induction", "Induction scores", scores, while_seen=True, takes=takes), setup)
if found.note:
    st.info(found.note[0].upper() + found.note[1:] + ".", icon=":material/info:")
names = selected_heads(target.shape)
frame = head_scores(target.shape, found, names).assign(pruned=~np.array(mask.heads).ravel())
inside = frame.loc[frame["in_corner"], "name"].tolist()

sheet = Sheet(tables={"Induction scores": frame}, says=[finding(frame)])
measurements: dict[str, Measurement[Any]] = {"Scores": scores, "Importance": overlap.importance_of(setup, target)}
with finding_at:
    if inside:
        heads = tuple(frame.index[frame["in_corner"]])
        measured = without_heads(target, task, heads, N_QUESTIONS, setup.data_dir)
        removal = work_of(measured)
        known = so_far(removal)
        sheet.says += [words] if (words := effect_in_words(known, task)) else []
        measurements["Without the induction heads"] = measured
    st.markdown(" ".join(sheet.says), help=finding_help(frame))
    if inside:
        live(removal.watched(), partial(draw_effect, removal, known, task.name, setup.spec.is_demo), since_s)
map_at, scatter_at = st.columns([6, 5], gap="large")
with map_at:
    st.subheader(f"{charts.TITLES[score]} of every head", help=charts.HELP[score])
    drawn = charts.score_map(frame, score, is_large=True)
    chart_with_heads(f"map {score}", charts.TITLES[score], drawn, in_words(frame, score), sheet)
    st.caption(induction_scores.ABOUT[score])
with scatter_at:
    st.subheader("Matching × copying", help=SCATTER_HELP)
    drawn = charts.induction_scatter(frame, (INDUCTION_FROM, found.chance))
    chart_with_heads("scatter", "Prefix matching and copying", drawn, corner_in_words(frame), sheet)
    weak = " Hollow, dashed: hardly above." if frame["hardly_copies"].any() else ""
    st.caption(f"Shaded: matching from {INDUCTION_FROM}, copying above {whole_percent(found.chance)} (chance).{weak}")
    mark("corner", "drawn" if inside else "none", heads=len(inside))
if not mask.is_full:
    st.caption("All scores are the full model's; a cross marks a head that is pruned.")
draw_actions(target.shape, names, inside, mask, int(frame["hardly_copies"].sum()))

sheet.says += [*(in_words(frame, each) for each in SCORES), corner_in_words(frame)]
if not presenting():  # a slide is one screen, and these are below it
    sections.draw(sections.InductionView(setup, target, found, frame, task), since_s, sheet)
request = ScoreInduction(**of_model(target.as_usual), out="induction.csv")
n = f"{found.n['prefix_matching']} examples"
pruned = [] if mask.is_full else [mask_in_words(target.shape, mask)]
of = about(target, "random tokens, as Olsson et al.", n, "scores of the full model", *pruned)
closing(Origin("Induction", [request], measurements, of), sheet)
