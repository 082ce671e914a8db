"""The Text screen: what a pruned model loses of a text, token by token, and what the heads look at.

`pages/ui/text/setting.py` reads the controls, `view.py` draws the text while it is measured, and `sections.py` what is
below it.
"""

import streamlit as st

from pages.ui.controls.controls import one_of
from pages.ui.controls.study import study
from pages.ui.controls.study_bar import draw_level
from pages.ui.controls.texts import PAPER, PAPER_SAYS, choose_text
from pages.ui.downloads.actions import draw_actions
from pages.ui.page.runtime import require_frame
from pages.ui.page.work import live
from pages.ui.text.reading import TextRun
from pages.ui.text.sections import draw_below
from pages.ui.text.setting import await_text, draw_badge, read_setting
from pages.ui.text.view import SHADE, SHADE_HELP, note_drawn, read_view

require_frame("pages/text.py")
asks, run = study(), TextRun()
with st.container(key="text_level"):
    badge_at = draw_level(asks).container(key="text_badge", gap=None)
with st.container(key="text_bar"):
    text_at, shade_at, head_at = st.columns([8.4, 4.2, 7.4], gap="medium", vertical_alignment="bottom")
chosen = choose_text(text_at)
shade = one_of(shade_at, "Shade by", SHADE, "text_shade", SHADE_HELP)
awaits_at = st.empty()
text = await_text(chosen, awaits_at)
x = read_setting(asks, text, shade, head_at)
view = read_view(x, run, run.pruned(x))
draw_badge(badge_at, x, view.side)
live([*run.waiting], view.draw, run.since_s)
note_drawn(text.name, text.text)
awaits_at.empty()
if text.name == PAPER:
    st.caption(PAPER_SAYS)
if view.is_whole:
    draw_actions(*draw_below(view))
