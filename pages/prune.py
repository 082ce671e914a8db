"""The Prune screen: choose a task and how much to prune, and see the remaining accuracy.

`pages/ui/prune/layout.py` draws it from its slider to its map, of what `state.py` has read and `schedule.py` measures.
"""

from functools import partial

import streamlit as st

from pages.ui.controls.study import is_to_set, study
from pages.ui.downloads.actions import draw_actions
from pages.ui.page.runtime import require_frame
from pages.ui.page.screens import draw_headline
from pages.ui.page.work import live
from pages.ui.prune import head_map, stories
from pages.ui.prune.layout import draw_page
from pages.ui.prune.panels import draw_panels
from pages.ui.prune.parts import draw_coloring

require_frame("pages/prune.py")
stories.apply_story(study())
head_map.apply_edits()
if is_to_set():
    st.rerun()
state = draw_page(study())
draw_headline("prune", stories.headline(state.x, state.mask))
live(["importance"], partial(draw_coloring, state), state.since_s)
draw_actions(draw_panels(state), state.sheet)
