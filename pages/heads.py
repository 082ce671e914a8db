"""The Heads screen: which heads matter for a task, what they do, and whether other tasks need the same."""

import time
from functools import partial
from typing import Any

import streamlit as st

from engine.importance.rankings_of import orders_of
from engine.models.masks import Mask
from engine.requests import Request
from engine.studies.surveys import in_words
from pages.ui.controls.coloring import COLORINGS, INDUCTION
from pages.ui.controls.controls import folded, one_of
from pages.ui.controls.many_tasks import show_failed
from pages.ui.controls.sidebar import wait_for_model
from pages.ui.controls.study import study
from pages.ui.controls.study_bar import draw_level, draw_pruned
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about
from pages.ui.figures.empty import empty_state
from pages.ui.figures.sheet import Sheet
from pages.ui.heads.across import draw_across
from pages.ui.heads.below import SCORES, draw_alone, draw_folded, draw_scores
from pages.ui.heads.card import HeadCard, choose_head, draw_card, first_head
from pages.ui.heads.map import choose_color, draw_map, draw_missing
from pages.ui.heads.scores import ScoreReader
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.page.presentation import presenting
from pages.ui.page.reads import stored_once
from pages.ui.page.runtime import end_run, errors_shown, require_frame

require_frame("pages/heads.py")
TABS = {"task": "This task", "across": "Across tasks"}
SHOWS = "You will see a map of all heads: what each costs, an estimate of it, or what it matches."

asks, since_s = study(), time.monotonic()
badge_at = draw_level(asks)
tab_at, color_at = st.columns([3, 10], vertical_alignment="center")
look: dict[str, Any] = {"label_visibility": "collapsed"}
if one_of(tab_at, "Part of the screen", TABS, "heads_tab", None, **look) == "across":
    draw_across(asks.setup, partial(wait_for_model, asks.setup, prunes=True), since_s)
    end_run()
target = wait_for_model(asks.setup, prunes=True)
with errors_shown():
    pruning = asks.pruning(target)
orders = stored_once(orders_of(target, pruning, asks.setup.data_dir)) if pruning.by_level else None
below = Mask.full(target.shape) if orders is None else pruning.by_levels(orders)
mask, of = pruning.typed.on(below), ScoreReader(asks, target, asks.asked(target))
draw_pruned(badge_at, target.shape, mask)
by = choose_color(color_at, of)
of.start(by)
if by != INDUCTION and of.induction_scores is None:
    of.start(INDUCTION)
sheet = Sheet()
map_at, card_at = st.columns([7, 5], gap="large")
with card_at:
    name = choose_head(target.shape, first_head(of))
with map_at:
    if draw_map(of, by, name, mask, sheet):
        draw_missing(of, by, since_s)
    else:
        is_read = all(work.is_read for work in of.missing(by))
        with empty_state("heads", SHOWS, is_read, key="empty map"), st.container():
            draw_missing(of, by, since_s)
    show_failed({} if by == INDUCTION else of.failed(of.whats(by)[0]))
with card_at:
    sections = draw_card(HeadCard(of, name, pruning.typed, below), sheet, since_s)
with map_at:
    sections.append(draw_alone(of, sheet, since_s))
if not presenting():  # a slide is one screen, and these are below it
    sections += draw_folded(of, sheet, since_s)
    folded(SCORES, "heads_table", partial(draw_scores, of, sheet), in_address=True)
requests: list[Request] = [*of.requests(by), *(section.request for section in sections)]
measured = {section.title: section.measured for section in sections}
measured |= of.measurements(by)
words = about(target, in_words(of.task), f"{RANKING_QUESTIONS} train questions", "the full model")
closing(Origin("Heads", requests, measured, words, f"{COLORINGS[by].lower()}, {of.task.name}"), sheet)
