"""The map of heads and FFNs: a click chooses the head of the card."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import streamlit as st

from engine.importance.criteria import MEASURED_BY
from engine.importance.importance import ORACLES, Scores
from engine.models.masks import Mask
from engine.views.importance import MapMarks, map_part
from engine.views.view import MAGNITUDE, Column, Part
from pages.ui.controls.coloring import COLORINGS, COST, ESTIMATE, INDUCTION
from pages.ui.controls.controls import one_of
from pages.ui.controls.heads import KEY
from pages.ui.controls.many_tasks import so_far, survey_line
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.sheet import Sheet
from pages.ui.heads.scores import ScoreReader
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.page.presentation import presenting
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.widget_writes import follow_default, write
from pages.ui.page.work import live

COLOR, MAP = "heads_color", "heads_map"
SHOWN = {each: COLORINGS[each] for each in (COST, ESTIMATE, INDUCTION)}
HELP = (
    f"Measured cost: accuracy lost without this head or FFN alone, on {RANKING_QUESTIONS} train questions; a number "
    "where the loss is clear (exact McNemar test, 5% for all together by Holm's correction). Heads that can replace "
    "one another cost little alone. Estimate: the score that the pruning order of the bar goes by. Induction: prefix "
    "matching, the attention to what followed a token's earlier copy. Heads and FFNs are each shaded by their own "
    "largest score, by its square root."
)
CAPTIONS = {
    COST: "Numbers: accuracy clearly lost without it, in points. Click a head.",
    ESTIMATE: "By the score of the pruning order, no unit. Click a head.",
    INDUCTION: "Attention to what followed an earlier copy, share. A dot: it copies. Click a head.",
}
OUTLINED = " Outlined: induction heads."
SHARE = Column("Prefix matching", ".2f")


def choose_color(where: DeltaGenerator, of: ScoreReader) -> str:
    """Draws the switch; returns what colors the map."""
    first = of.opens_with()
    follow_default(COLOR, first)
    return one_of(where, "Color by", SHOWN, COLOR, HELP, default=first, label_visibility="collapsed")


def draw_map(of: ScoreReader, by: str, head: str, mask: Mask, sheet: Sheet) -> bool:
    """Draws the map by what is stored; returns whether there is one."""
    part = read_map(of, by, head, mask)
    if part is not None:
        picture = sheet.add_part(part, "Heads")
        assert picture is not None
        words = "; ".join(f"{row['name']}: {row['text']}" for row in part.first(4))
        draw_chart(picture, f"{MAP} {by}", f"Highest: {words}.", on_select=_clicked_in(by), selection_mode="head")
        if not presenting():
            st.caption(CAPTIONS[by] + OUTLINED * (of.induction_scores is not None))
    return part is not None


def draw_missing(of: ScoreReader, by: str, since_s: float) -> None:
    """Draws the progress or the button of what the map lacks."""
    for work in of.missing(by):
        if by == INDUCTION:
            live(work.watched(), lambda work=work: work.ask(False, "Measure induction", "repeat", HELP), since_s)
            continue
        live(work.watched(), lambda work=work: survey_line(work, 1, so_far(work), since_s), since_s)


def read_map(of: ScoreReader, by: str, head: str, mask: Mask) -> Part | None:
    """Returns the map by what is stored; None without scores of heads."""
    known = of.induction_scores
    outlined = None if known is None else known.is_induction_head
    if by == INDUCTION:
        if known is None:
            return None
        heads = Scores("prefix matching", 0, np.nan_to_num(known.mean["prefix_matching"]))
        marks = MapMarks(head, mask, outlined, known.copying_share > known.chance)
        return map_part("Prefix matching", (SHARE, SHARE), (heads, None), marks, "head")
    whats = of.whats(by)
    heads, ffns = (of.found(what) for what in whats)
    if heads is None:
        return None
    columns = tuple(_column(what) for what in whats)
    return map_part(columns[0].title, (columns[0], columns[1]), (heads, ffns), MapMarks(head, mask, outlined), "head")


def clicked_on(key: str, selection: str) -> Mapping[str, Any]:
    """Returns the fields of the clicked cell of a chart; none of a click elsewhere."""
    points = ((st.session_state.get(key) or {}).get("selection") or {}).get(selection)
    return points[0] if points else {}


def _column(what: str) -> Column:
    return Column("Points lost alone", ".0f") if what in ORACLES else Column(MEASURED_BY[what].label, MAGNITUDE)


def _clicked_in(by: str) -> Callable[[], None]:
    def clicked() -> None:
        name = str(clicked_on(f"{MAP} {by}", "head").get("name", ""))
        if name.startswith("L"):  # not an FFN
            write(KEY, name)

    return clicked
