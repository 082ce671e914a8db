"""The Training screen: small models while they are trained, snapshot by snapshot, on one axis of tokens."""

import streamlit as st

from pages.ui.shared.runtime import lab, require_frame
from pages.ui.training import sections
from pages.ui.training.choosing import choose
from pages.ui.training.slider import draw_field, moment, slider
from pages.ui.training.tables import in_words

require_frame("pages/training.py")
draw_field()
runs_at, axis_at, tokens_at, folder_at = st.columns([20, 5, 5, 4], vertical_alignment="bottom")
choice = choose(runs_at, axis_at, folder_at)
if choice.runs:
    at = moment(tokens_at, choice.runs)
    view = sections.View.of(choice.runs, choice.log, at)
    slider(choice.runs, view.look, at, None)
    sections.first_charts(view)
    sections.more_heads(view)
    sections.losses(view)
    sections.index_maps(view)
    sections.draw_paths(view, __import__("pages.ui.training.tables").ui.training.tables.paths(view.runs, sections.found_paths(view.runs)))
    sections.carriers(view)
