"""The Text screen: what a pruned model loses of a text, token by token, and what the heads look at.

`pages/ui/text/setting.py` reads the controls, `view.py` draws the text while it is measured, and `sections.py` what is
below it.
"""

import streamlit as st

from pages.ui.controls.controls import one_of
from pages.ui.controls.study import study
from pages.ui.controls.study_bar import ROW, bar_boxes, draw_level, draw_restore
from pages.ui.controls.texts import PAPER, PAPER_SAYS, choose_text
from pages.ui.downloads.actions import draw_actions
from pages.ui.page.runtime import require_frame
from pages.ui.page.work import live
from pages.ui.text.reading import TextRun
from pages.ui.text.sections import draw_below
from pages.ui.text.setting import await_text, read_setting
from pages.ui.text.view import SHADE, SHADE_HELP, note_drawn, read_view

require_frame("pages/text.py")
asks, run = study(), TextRun()
chosen = choose_text(bar_boxes())
shade = one_of(bar_boxes(), "Shade by", SHADE, "text_shade", SHADE_HELP, width="content")
with st.container(key="text_level", **ROW):
    level_at, pruning_at = st.container(), st.container(width="content", **ROW)
draw_level(asks, level_at)
awaits_at = st.empty()
text = await_text(chosen, awaits_at)
x = read_setting(asks, text, shade, pruning_at)
view = read_view(x, run, run.pruned(x))
draw_restore(pruning_at, disabled=not (x.pruning.by_level or asks.typed))
live([*run.waiting], view.draw, run.since_s)
note_drawn(text.name, text.text)
awaits_at.empty()
if text.name == PAPER:
    st.caption(PAPER_SAYS)
if view.is_whole:
    draw_actions(*draw_below(view))
