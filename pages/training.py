"""The Training screen: small models while they are trained, snapshot by snapshot, on one axis of tokens."""

import time
from functools import partial

import streamlit as st

from pages.ui.downloads.exports import Drawn, Table
from pages.ui.downloads.footer import closing
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

require_frame("pages/training.py")
draw_field()
since_s = time.monotonic()
runs_at, axis_at, tokens_at, more_at = st.columns([16, 5, 7, 5], vertical_alignment="bottom")
choice = choose(runs_at, axis_at, more_at)
pictures: dict[str, Drawn] = {}
tables: dict[str, Table] = {}


def add(found: sections.Found) -> None:
    """Collects what a section has drawn, for the files."""
    pictures.update(found[0])
    tables.update(found[1])


waiting = [(choice.sources[name], choice.labels[name]) for name in choice.unmeasured]
if waiting:
    live([work_of(source).slot for source, _ in waiting], partial(draw_unmeasured, waiting, since_s), since_s)
if not choice.runs:
    draw_live(choice.folder)
    end_run()
at = moment(tokens_at, choice.runs)
view = sections.TrainingFrames.of(choice.runs, choice.log, at)
slider(choice.runs, view.look, at)
add(sections.first_charts(view))
tables["Runs"] = recipes(view.runs)
draw_followed(choice, at)
draw_made(choice.runs)
if not presenting():  # a slide shows one screen, and these sections are below it
    label, icon = "Train one now: charts that grow", ":material/model_training:"
    more = st.expander(label, key="training_live", on_change="rerun", icon=icon)
    if more.open:
        with more:
            draw_live(choice.folder)
    add(sections.more_heads(view))
    add(sections.losses(view))
    add(sections.passage(view))
    add(sections.index_maps(view))
    like = sections.alike(view.runs)
    found = sections.path_work(like).awaited() if like else None
    if found is not None:
        add(sections.draw_paths(view, found, like))
    add(sections.carriers(view))
    label, icon = "Model analysis table: a column a run, nine rows", ":material/table_chart:"
    more = st.expander(label, key="training_analysis", on_change="rerun", icon=icon)
    if more.open:
        with more:
            add(sections.analysis(view, found if len(like) == len(view.runs) else None))
    label, icon = "What the paper says, and what these runs show", ":material/fact_check:"
    more = st.expander(label, key="training_statements", on_change="rerun", icon=icon)
    if more.open:
        with more:
            add(statements(choice.sources))
closing(origin(choice.runs, choice.sources), tables, pictures)
