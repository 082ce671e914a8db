"""The tab of one task: the map of heads, the card of one, heads alone and together, and what is folded."""

from functools import partial

import streamlit as st

from engine.importance.orders import orders_of
from engine.models.masks import Mask
from engine.models.session import Target
from engine.requests import Request
from engine.studies.surveys import describe_task
from pages.ui.controls.coloring import INDUCTION, choose_coloring
from pages.ui.controls.controls import folded
from pages.ui.controls.many_tasks import show_failed
from pages.ui.controls.study import Study
from pages.ui.controls.study_bar import draw_pruned
from pages.ui.downloads.actions import draw_actions
from pages.ui.downloads.origin import Origin, about
from pages.ui.figures.empty import empty_state
from pages.ui.figures.sheet import Sheet
from pages.ui.heads.below import SCORES, draw_alone, draw_folded, draw_scores
from pages.ui.heads.card import HeadCard, choose_head, draw_card, first_head
from pages.ui.heads.map import draw_map, draw_missing, map_in_words
from pages.ui.heads.scores import ScoreReader
from pages.ui.page.reads import stored_cached
from pages.ui.page.runtime import errors_shown
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.work import Work, live

SHOWS = "You will see a map of all heads: what each costs, an estimate of it, or what it matches."


def draw_task(asks: Study, target: Target, badge_at: DeltaGenerator, color_at: DeltaGenerator, since_s: float) -> None:
    """Draws the tab of a study; the badge of what is pruned and the switch of colors have places of their own."""
    with errors_shown():
        pruning = asks.pruning(target)
    wanted = orders_of(target, pruning, asks.data_dir)
    order = Work("heads order", "Ranking", wanted, 1, while_seen=True)
    orders = stored_cached(wanted) if pruning.by_level else None
    if pruning.by_level and orders is None:
        order.start()
        with badge_at:
            live([order.slot], order.line, since_s)
    below = Mask.full(target.shape) if orders is None else pruning.by_levels(orders)
    mask, of, sheet = pruning.typed.on(below), ScoreReader(asks, target, asks.asked(target)), Sheet()
    draw_pruned(badge_at, target.shape, mask)
    by = choose_coloring(color_at, of.opens_with())
    of.start(by)
    if by != INDUCTION and of.induction_scores is None:
        of.start(INDUCTION)
    map_at, card_at = st.columns([7, 5], gap="large")
    with card_at:
        head = choose_head(target.shape, first_head(of))
    with map_at:
        _draw_map(of, by, head, mask, sheet, since_s)
    with card_at:
        sections = draw_card(HeadCard(of, head, pruning.typed, below), sheet, since_s) if head else []
    with map_at:
        sections.append(draw_alone(of, map_in_words(of, by), sheet, since_s))
    sections += draw_folded(of, sheet, since_s)
    folded(SCORES, "heads_table", partial(draw_scores, of, sheet), in_address=True)
    requests: list[Request] = [*of.requests(by), *(section.request for section in sections)]
    measured = {section.title: section.measured for section in sections} | of.measurements(by)
    words = about(target, describe_task(of.task), f"{of.ranking(by).n_scored} train questions", "the full model")
    draw_actions(Origin("Heads", requests, measured, words), sheet)


def _draw_map(of: ScoreReader, by: str, head: str, mask: Mask, sheet: Sheet, since_s: float) -> None:
    """Draws the map, or its sketch, with the progress of what is missing."""
    if draw_map(of, by, head, mask, sheet):
        draw_missing(of, by, since_s)
    else:
        is_read = all(work.is_read for work in of.missing(by))
        with empty_state("heads", SHOWS, is_read, key="empty map"), st.container():
            draw_missing(of, by, since_s)
    show_failed(of.failed(by))
