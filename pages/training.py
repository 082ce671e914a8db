"""The Training screen: small models while they are trained, snapshot by snapshot, on one axis of tokens."""

import time
from functools import partial

import streamlit as st

from pages.ui.controls.controls import folded
from pages.ui.downloads.footer import closing
from pages.ui.figures.sheet import Sheet
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import end_run, require_frame
from pages.ui.page.work import live
from pages.ui.training import sections
from pages.ui.training.choosing import choose, draw_followed, draw_made
from pages.ui.training.live import draw_live
from pages.ui.training.measuring import draw_unmeasured, work_of
from pages.ui.training.origin import origin, recipes
from pages.ui.training.slider import draw_field, moment, slider
from pages.ui.training.statements import statements
from pages.ui.training.tables import in_words

require_frame("pages/training.py")
draw_field()
since_s = time.monotonic()
finding_at = st.container()
runs_at, tokens_at, more_at = st.columns([20, 7, 5], vertical_alignment="bottom")
choice = choose(runs_at, more_at)
sheet = Sheet()
waiting = [(choice.sources[name], choice.labels[name]) for name in choice.unmeasured]
if waiting:
    live([work_of(source).slot for source, _ in waiting], partial(draw_unmeasured, waiting, since_s), since_s)
if not choice.runs:
    draw_live(choice.folder)
    end_run()
sheet.says = [in_words(run) for run in choice.runs]
finding_at.markdown(" ".join(sheet.says))
at = moment(tokens_at, choice.runs)
view = sections.TrainingFrames.of(choice.runs, choice.log, at)
slider(choice.runs, view.look, at)
sections.first_charts(view, sheet)
sheet.tables["Runs"] = recipes(view.runs)
draw_followed(choice, at)
draw_made(choice.runs)
if not presenting():  # a slide shows one screen, and these sections are below it
    label, icon = "Train a tiny model live", ":material/model_training:"
    folded(label, "training_live", partial(draw_live, choice.folder), icon)
    sections.more_heads(view, sheet)
    sections.losses(view, sheet)
    sections.passage(view, sheet)
    sections.index_maps(view, sheet)
    like = sections.alike(view.runs)
    found = sections.path_work(like).awaited() if like else None
    if found is not None:
        sections.draw_paths(view, found, like, sheet)
    sections.carriers(view, sheet)
    label, icon = "Model analysis table: a column a run, nine rows", ":material/table_chart:"
    of_all = found if len(like) == len(view.runs) else None
    folded(label, "training_analysis", partial(sections.analysis, view, of_all, sheet), icon)
    label, icon = "What the paper says, and what these runs show", ":material/fact_check:"
    folded(label, "training_statements", partial(statements, choice.sources, sheet), icon)
closing(origin(choice.runs, choice.sources), sheet)
