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
from pages.ui.training.finding import finding
from pages.ui.training.live import draw_live
from pages.ui.training.measuring import draw_unmeasured, work_of
from pages.ui.training.origin import origin
from pages.ui.training.passage import passage
from pages.ui.training.slider import draw_field, moment, slider
from pages.ui.training.statements import statements

PASSAGE_KEYS = ("training_text", "training_reader", "training_tint", "training_token_a", "training_token_b")

require_frame("pages/training.py")
draw_field()
since_s = time.monotonic()
finding_at = st.container()
runs_at, start_at, recipes_at, more_at = st.columns([17.0, 13.6, 5.7, 5.7], vertical_alignment="bottom", gap="small")
choice = choose(runs_at, more_at)
sheet = Sheet()
if not presenting():
    draw_live(choice.folder, start_at, recipes_at)
waiting = [(choice.sources[name], choice.labels[name]) for name in choice.unmeasured]
if waiting:
    live([work_of(source).slot for source, _ in waiting], partial(draw_unmeasured, waiting, since_s), since_s)
if not choice.runs:
    end_run()
said = finding(choice.runs)
sheet.says = ["  \n".join(said)]
n_shown = 1 if presenting() else 2
finding_at.markdown("  \n".join(said[:n_shown]))
at = moment(choice.runs)
view = sections.TrainingFrames.of(choice.runs, choice.log, at)
with st.container():  # one block: a slide shows all of it, in smaller type if need be
    slider(choice.runs, view.look, at)
    sections.first_charts(view, sheet)
if not presenting():  # a slide shows one screen, and these sections are below it
    draw_followed(choice, at)
    draw_made(choice.runs)
    for label, key, icon, inside, holds in (
        ("Loss along the text, by token index: before the phase change only early tokens gain", "slopes", "grid_on",
         partial(sections.slopes, view, sheet), ()),
        ("When previous-token heads form, which induction heads read from", "previous", "keyboard_tab",
         partial(sections.more_heads, view, sheet), ()),
        ("The loss, and how much more training gains", "losses", "trending_down",
         partial(sections.losses, view, sheet), ()),
        ("A passage, token by token: what training makes predictable", "passage", "format_ink_highlighter",
         partial(passage, view, sheet), PASSAGE_KEYS),
        ("Which heads carry the change: each head ablated", "carriers", "science",
         partial(sections.carriers, view, sheet), ()),
        ("The path of the whole run on two components, which turns at the phase change", "paths", "route",
         partial(sections.draw_paths, view, sheet), ()),
        ("What papers say, and what these runs show", "statements", "fact_check",
         partial(statements, choice.sources, sheet), ()),
    ):  # fmt: skip
        folded(label, f"training_{key}", inside, f":material/{icon}:", in_address=True, holds=holds)
closing(origin(choice.runs, choice.sources, in_full=not presenting()), sheet)
