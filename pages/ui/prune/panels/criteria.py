"""The Prune screen's collapsible section that compares criteria: the same task and questions, pruned by several
rankings."""

import streamlit as st

from engine.studies.surveys import StudySettings
from pages.ui.comparison.criteria import CriteriaView, choose_comparing, draw_comparison
from pages.ui.controls.sidebar import Setup
from pages.ui.downloads.origin import command_line
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.prune.screen import PruneScreen

SLOT = "prune compare"
ALONE = "Each curve begins with the full model: the pruning set above does not apply here."


def draw_criteria(screen: PruneScreen, setup: Setup) -> CriteriaView | None:
    """Draws the section if it is open; returns the comparison, or None."""
    assert screen.shown is not None
    x = screen.shown.x
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    comparing = choose_comparing("prune", row, st.container(), x.task)
    if comparing is None:
        return None
    if screen.shown.mask is None or not screen.shown.mask.is_full:
        st.caption(ALONE)
    setting = StudySettings(setup.spec, setup.bos, x.data_dir, x.limit, RANKING_QUESTIONS)
    of = CriteriaView(SLOT, setting, x.target, comparing)
    draw_comparison(of, screen.sheet, screen.since_s)
    st.code(command_line(of.request), language="shell", wrap_lines=True)
    return of
