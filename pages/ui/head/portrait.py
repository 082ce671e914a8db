"""First on the screen: one large score with further facts, and its pattern on random tokens and in a text."""

from math import isnan
from typing import Any

import pandas as pd
import streamlit as st

from engine.studies.one_head import READ
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.sheet import Sheet
from pages.ui.head import charts, tables
from pages.ui.head.measuring import Known, draw_missing, is_awaited
from pages.ui.page.runtime import notes
from pages.ui.page.tables import whole_percent

NAMES = {"probe": "Pattern on random tokens", "texts": "Pattern in a text"}
PALE = 0.15
Pattern = tuple[pd.DataFrame, int, tuple[int, ...]]  # arguments of charts.pattern_map
PROBE_HELP = (
    "From each token (rows) to the token that it looks at (columns). On the left a beginning and 25 random tokens, "
    "four times over, the first of the ten that the prefix-matching score is measured on: an induction head looks from "
    "a token at what followed its earlier copies, along the dots. On the right "
    f"“{READ}”: along the dots a previous-token head looks; the left edge is the first token."
)


def draw_portrait(known: Known, sheet: Sheet) -> None:
    """Draws them."""
    wraps = st.container(key="wraps portrait")
    figure_at, probe_at, text_at = wraps.columns([8, 10, 10], gap="medium")
    with figure_at:
        _draw_figure(known)
    with probe_at, st.container(gap="xxsmall"):
        _draw_probe(known, sheet)
    with text_at, st.container(gap="xxsmall"):
        _draw_text(known, sheet)


def _draw_figure(known: Known) -> None:
    draw_missing(known, "scores")
    figure = tables.figure_of(known.found)
    if figure is not None:
        gray: dict[str, Any] = {"delta_color": "off", "delta_arrow": "off"}
        st.metric(figure.title, figure.value, figure.rank, **gray)
        st.caption(figure.about)
    st.markdown("  \n".join(tables.facts(known.found)))


def _draw_probe(known: Known, sheet: Sheet) -> None:
    found = known.found
    st.markdown("**Where it looks**, on random tokens", help=PROBE_HELP)
    if found.probe is None:
        _draw_pale(known, "probe")
        return
    n, period = len(found.probe.pieces), found.probe.period
    offsets = tuple(copies * period - 1 for copies in range(1, (n - 1) // period))
    matching = found.score("prefix_matching")
    share = "" if isnan(matching) else f": {whole_percent(matching)} of its attention"
    words = f"Orange dots: what followed an earlier copy{share}."
    _draw_pattern(known, "probe", (tables.probe_cells(found.probe), n, offsets), words, sheet)


def _draw_text(known: Known, sheet: Sheet) -> None:
    st.markdown(f"… and in “{READ}”")
    if READ not in known.found.texts:
        _draw_pale(known, "texts")
        return
    seen = known.found.texts[READ]
    shares = [whole_percent(share) for share in (float(seen.to_previous[1:].mean()), seen.rests)]
    words = "Orange dots: the token just before, {} of its attention. Left edge: the first, {}.".format(*shares)
    _draw_pattern(known, "texts", (tables.text_cells(seen), len(seen.token_ids), (1,)), words, sheet)


def _draw_pattern(known: Known, part: str, pattern: Pattern, words: str, sheet: Sheet) -> None:
    notes()[NAMES[part]] = known.target, pattern
    drawn = charts.pattern_map(*pattern)
    draw_chart(drawn, f"head {part}", words)
    sheet.pictures[NAMES[part]] = charts.square(drawn)
    st.caption(words)


def _draw_pale(known: Known, part: str) -> None:
    """Draws what is missing, while it comes by itself below the pattern of the head before: steps keep the place."""
    target, pattern = notes().get(NAMES[part], (None, None))
    if pattern is not None and target == known.target and is_awaited(known, part):
        cells, *rest = pattern
        pale = charts.pattern_map(cells.assign(attention=PALE * cells["attention"]), *rest)
        draw_chart(pale, f"head {part}", "The head before.")
    draw_missing(known, part)
