"""The Heads screen: which heads matter for a task, what they do, and whether other tasks need the same."""

import time
from functools import partial

import streamlit as st

from pages.ui.controls.controls import one_of
from pages.ui.controls.model import wait_for_model
from pages.ui.controls.study import study
from pages.ui.controls.study_bar import draw_level
from pages.ui.heads.across import draw_across
from pages.ui.heads.task import draw_task
from pages.ui.page.runtime import require_frame

require_frame("pages/heads.py")
TABS = {"task": "This task", "across": "Across tasks"}

asks, since_s = study(), time.monotonic()
level_at, badge_at = st.columns([8, 5], gap="medium", vertical_alignment="center")
draw_level(asks, level_at)
tab_at, color_at = st.columns([3, 10], vertical_alignment="center")
wait = partial(wait_for_model, asks, prunes=True)
if one_of(tab_at, "Part of the screen", TABS, "heads_tab", None, label_visibility="collapsed") == "across":
    draw_across(asks, wait, since_s)
else:
    draw_task(asks, wait(), badge_at, color_at, since_s)
