"""The map of heads and FFNs: a click chooses the head of the card."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from engine.heads.induction import best_heads
from engine.importance.scores import ORACLES, Scores
from engine.models.masks import Mask
from engine.studies.surveys import describe_task
from engine.views.importance import MapMarks, map_part
from engine.views.view import MAGNITUDE, Column, Part
from engine.views.words import listed
from pages.ui.controls.coloring import COST, ESTIMATE, INDUCTION, title_of
from pages.ui.controls.many_tasks import so_far, survey_line
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.sheet import Sheet
from pages.ui.heads.scores import ScoreReader
from pages.ui.page.widget_writes import write
from pages.ui.page.work import live
from pages.ui.sections.section import MEASURE_HELP

KEY = "head"  # the query parameter that names the head of the card
MAP, N_NAMED = "heads_map", 3
CAPTIONS = {
    COST: "Points lost without it, {n} train questions; numbers where clear. Click a head.",
    ESTIMATE: "Score of the pruning order from {n} train questions, no unit. Click a head.",
    INDUCTION: "Attention to what followed an earlier copy, share. A dot: it clearly copies. Click a head.",
}
CLEAR_HELP = "Clear: by McNemar's exact test, 5% for all heads and FFNs together by Holm's correction."
OUTLINED = " Outlined: induction heads."
SHARE = Column("Prefix matching", ".2f")


def draw_map(of: ScoreReader, by: str, head: str, mask: Mask, sheet: Sheet) -> bool:
    """Draws the map by what is stored; returns whether there is one."""
    part = read_map(of, by, head, mask)
    if part is not None:
        picture = sheet.add_part(part, "Heads")
        assert picture is not None
        words = "; ".join(f"{row['name']}: {row['text']}" for row in part.first(4))
        draw_chart(picture, f"{MAP} {by}", f"Highest: {words}.", on_select=_clicked_in(by), selection_mode="head")
        scores, _ = (None, None) if by == INDUCTION else of.found(by)
        caption = CAPTIONS[by].format(n=0 if scores is None else scores.n)
        outlined = OUTLINED * (of.induction_scores is not None)
        st.caption(caption + outlined, help=CLEAR_HELP if by == COST else None)
    return part is not None


def draw_missing(of: ScoreReader, by: str, since_s: float) -> None:
    """Draws the progress or the button of what the map lacks: of heads, then of FFNs."""
    for work in of.missing(by)[:1]:
        ask = partial(work.ask, False, "Measure induction", "repeat", MEASURE_HELP)
        draw = ask if by == INDUCTION else lambda work=work: survey_line(work, 1, so_far(work), since_s)
        live(work.watched(), draw, since_s)


def read_map(of: ScoreReader, by: str, head: str, mask: Mask) -> Part | None:
    """Returns the map by what is stored; None without scores of heads."""
    known = of.induction_scores
    outlined = None if known is None else known.is_induction_head
    if by == INDUCTION:
        if known is None:
            return None
        heads = Scores("prefix matching", 0, np.nan_to_num(known.mean["prefix_matching"]))
        marks = MapMarks(head, mask, outlined, (known.copying_share > known.chance) & ~known.copies_hardly)
        return map_part("Prefix matching", (SHARE, SHARE), (heads, None), marks, "head")
    heads, ffns = of.found(by)
    if heads is None:
        return None
    columns = tuple(_column(what) for what in of.whats(by))
    return map_part(columns[0].title, (columns[0], columns[1]), (heads, ffns), MapMarks(head, mask, outlined), "head")


def map_in_words(of: ScoreReader, by: str) -> str:
    """Returns which heads stand out on the map, in a sentence; "" before there is a map, and of what each head costs,
    which is said of heads alone and together."""
    names, known = of.target.shape.head_names, of.induction_scores
    if by == INDUCTION and known is not None:
        best, _ = next(best_heads(known.mean["prefix_matching"], 1))
        return f"{int(known.is_induction_head.sum())} of {len(names)} heads are induction heads; {best} matches best."
    scores = of.found(by)[0] if by == ESTIMATE else None
    if scores is None:
        return ""
    best = [name for name, _ in best_heads(scores.scores, N_NAMED)]
    return f"On {describe_task(of.task)}, {listed(best)} matter most by the estimate."


def clicked_on(key: str, selection: str) -> Mapping[str, Any]:
    """Returns the fields of the clicked cell of a chart; none of a click elsewhere."""
    points = ((st.session_state.get(key) or {}).get("selection") or {}).get(selection)
    return points[0] if points else {}


def _column(what: str) -> Column:
    return Column(title_of(what), ".0f" if what in ORACLES else MAGNITUDE)


def _clicked_in(by: str) -> Callable[[], None]:
    def clicked() -> None:
        name = str(clicked_on(f"{MAP} {by}", "head").get("name", ""))
        if name.startswith("L"):  # not an FFN
            write(KEY, name)

    return clicked
