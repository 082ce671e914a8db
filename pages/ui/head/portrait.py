"""First on the screen: one large score with further facts, and its pattern on random tokens and in a text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.heads.in_text import HeadInText
from engine.studies.one_head import READ
from engine.studies.portrait import Portrait
from engine.views.pictures import Picture
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.empty import draw_sketch, empty_state
from pages.ui.figures.sheet import Sheet
from pages.ui.head import charts, tables
from pages.ui.head.measuring import Known, draw_all, draw_missing, is_awaited
from pages.ui.page.presentation import presenting
from pages.ui.page.tables import whole_percent

NAMES = {"probe": "Pattern on random tokens", "texts": "Pattern in a text"}
SHOWS = "You will see its scores among all heads, where it looks, and what is lost without it."
PREVIOUS = "previous_token"
LOOKS_AT = {  # where a head of each kind looks
    "prefix_matching": "what followed an earlier copy",
    PREVIOUS: "the token just before",
    "duplicate_token": "an earlier copy",
}
NOTICED = 0.1  # share of the attention from which its place is marked
Pattern = tuple[pd.DataFrame, int, tuple[int, ...]]  # arguments of charts.pattern_map
PROBE_HELP = (
    "From each token (rows) to the token that it looks at (columns). On the left a beginning and 25 random tokens, "
    "four times over, the first of the ten that the prefix-matching score is measured on. On the right "
    f"“{READ}”. Orange marks where heads of this kind look, if a tenth of its attention goes there; the left edge "
    "is the first token."
)


def draw_portrait(known: Known, sheet: Sheet) -> None:
    """Draws them; as long as nothing is known, what they will be, and the button or the progress."""
    if known.is_blank:
        demo = {} if known.target.spec.is_demo else {"model": "demo", "precision": "int8"}
        with empty_state("matrix", SHOWS, known.is_read, demo):
            draw_all(known)
        return
    wraps = st.container(key="wraps slide" if presenting() else "wraps portrait")
    figure_at, probe_at, text_at = wraps.columns([8, 10, 10], gap="medium")
    with figure_at:
        _draw_figure(known)
    with probe_at, st.container(gap="xxsmall"):
        _draw_probe(known, sheet)
    with text_at, st.container(gap="xxsmall"):
        _draw_text(known, sheet)


def _draw_figure(known: Known) -> None:
    gray: dict[str, Any] = {"delta_color": "off", "delta_arrow": "off"}
    for figure in tables.figures_of(known.found):
        with st.container(key="head_may_be_chance" if figure.is_chance else None):
            st.metric(figure.title, figure.value, figure.note, **gray)
        st.caption(figure.about)
    st.markdown("  \n".join(tables.facts(known.found)))


def _draw_probe(known: Known, sheet: Sheet) -> None:
    found = known.found
    st.markdown("**Where it looks**, on random tokens", help=PROBE_HELP)
    if found.probe is None:
        _draw_awaited(known, "probe")
        return
    n, period, kind = len(found.probe.pieces), found.probe.period, kind_of(found)
    offsets, words = mark_kind(kind, found.score(kind), range(period, n - 1, period))
    _draw_pattern(known, "probe", (tables.probe_cells(found.probe), n, offsets), words, sheet)


def _draw_text(known: Known, sheet: Sheet) -> None:
    st.markdown(f"… and in “{READ}”")
    if READ not in known.found.texts:
        _draw_awaited(known, "texts")
        return
    seen, kind = known.found.texts[READ], kind_of(known.found)
    offsets, words = mark_kind(kind, *looks_in_text(seen, kind))
    words = f"{words} Left edge: the first token, {whole_percent(seen.rests)} of all tokens'.".strip()
    _draw_pattern(known, "texts", (tables.text_cells(seen), len(seen.token_ids), offsets), words, sheet)


def kind_of(found: Portrait) -> str:
    """Returns the score that names its kind; a head of no kind is looked at as a previous-token head."""
    return next(iter(tables.kinds(found)), PREVIOUS)


def mark_kind(kind: str, share: float, copies: Sequence[int]) -> tuple[tuple[int, ...], str]:
    """Returns (offsets to mark, a sentence on them): where such heads look, if `share` of its attention does so.
    `copies` are the distances between a token and its copies."""
    if not share >= NOTICED:
        return (), ""
    at = {"prefix_matching": [each - 1 for each in copies], PREVIOUS: [1], "duplicate_token": copies}[kind]
    whose = "its attention" if kind == PREVIOUS else "repeated tokens' attention"
    return tuple(at), f"Orange: {LOOKS_AT[kind]}, {whole_percent(share)} of {whose}."


def looks_in_text(seen: HeadInText, kind: str) -> tuple[float, Sequence[int]]:
    """Returns (share of its attention where heads of this kind look, the usual distance between copies in the text),
    the share over the tokens that have a copy at that distance."""
    if kind == PREVIOUS:
        return float(seen.to_previous[1:].mean()), ()
    later, earlier = np.nonzero(np.tril(seen.token_ids[:, None] == seen.token_ids, -1))
    if not len(later):
        return 0, ()
    distance = int(np.bincount(later - earlier).argmax())
    later = later[later - earlier == distance]
    return float(seen.pattern[later, later - distance + (kind == "prefix_matching")].mean()), (distance,)


def _draw_pattern(known: Known, part: str, pattern: Pattern, words: str, sheet: Sheet) -> None:
    drawn = charts.pattern_map(*pattern)
    _draw_square(drawn, part, words or f"{NAMES[part]}.")
    sheet.pictures[NAMES[part]] = charts.square(drawn)
    if words:
        st.caption(words)


def _draw_square(drawn: Picture, part: str, words: str) -> None:
    """Draws a pattern as wide as its column, where the style sheet makes it square; on a slide at its own size."""
    if presenting():
        draw_chart(charts.square(drawn), f"head {part}", words, width="content")
    else:
        draw_chart(drawn, f"head {part}", words, height="stretch")


def _draw_awaited(known: Known, part: str) -> None:
    """Draws what is missing, while it comes by itself below a sketch."""
    if is_awaited(known, part):
        draw_sketch("pattern", part)
    draw_missing(known, part)
