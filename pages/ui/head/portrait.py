"""First on the screen: one large score with further facts, and its pattern on random tokens and in a text."""

from typing import Any

import streamlit as st

from engine.studies.one_head import READ
from pages.ui.figures.induction_scores import MEANINGS
from pages.ui.figures.sheet import Sheet
from pages.ui.head import charts, tables
from pages.ui.head.measuring import Known, draw_missing
from pages.ui.page.tables import number

PROBE, TEXT = "Pattern on random tokens", "Pattern in a text"
FIGURE_HELP = "Prefix matching and copying make an induction head. " + MEANINGS
PROBE_HELP = (
    "From each token (rows) to the token that it looks at (columns). On the left a beginning and 25 random tokens, "
    "four times over, the first of the ten that the prefix-matching score is measured on: an induction head looks from "
    "a token at what followed its earlier copies, along the dotted lines. On the right "
    f"“{READ}”: along the dotted line a previous-token head looks; the left edge is the first token."
)


def draw_portrait(known: Known, sheet: Sheet) -> None:
    """Draws them."""
    wraps = st.container(key="wraps portrait")
    figure_at, probe_at, text_at = wraps.columns([9, 10, 10], gap="large")
    with figure_at:
        _draw_figure(known)
    with probe_at:
        _draw_probe(known, sheet)
    with text_at:
        _draw_text(known, sheet)


def _draw_figure(known: Known) -> None:
    draw_missing(known, "scores")
    figure = tables.figure_of(known.found)
    if figure is not None:
        gray: dict[str, Any] = {"delta_color": "off", "delta_arrow": "off", "help": FIGURE_HELP}
        st.metric(figure.title, figure.value, figure.rank, **gray)
        st.caption(figure.about)
    lines = [f"{fact[:1].upper()}{fact[1:]}" for fact in tables.facts(known.found)]
    if lines:
        st.markdown("\n".join(f"- {line}" for line in lines))


def _draw_probe(known: Known, sheet: Sheet) -> None:
    found = known.found
    st.markdown("**Where it looks**, on random tokens", help=PROBE_HELP)
    draw_missing(known, "probe")
    if found.probe is not None:
        n, period = len(found.probe.pieces), found.probe.period
        offsets = tuple(copies * period - 1 for copies in range(1, (n - 1) // period))
        words = f"Prefix matching {number(found.score('prefix_matching'))} of its attention."
        sheet.draw(
            PROBE, charts.pattern_map(tables.probe_cells(found.probe), n, offsets), "head probe", words, width="content"
        )
        st.caption("Strong along the dotted lines: it looks at what followed an earlier copy.")


def _draw_text(known: Known, sheet: Sheet) -> None:
    st.markdown(f"… and in “{READ}”")
    draw_missing(known, "texts")
    if READ in known.found.texts:
        seen = known.found.texts[READ]
        drawn = charts.pattern_map(tables.text_cells(seen), len(seen.token_ids), (1,))
        sheet.draw(TEXT, drawn, "head text", tables.rests_in_words(seen), width="content")
        st.caption("Dotted: the token just before. Left edge: the first token, where idle heads look.")
