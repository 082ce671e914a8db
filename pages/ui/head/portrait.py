"""First on the screen: its scores among those of all heads, and its pattern on random tokens and in a text."""

import streamlit as st

from engine.heads.induction import VARIANTS
from engine.studies.one_head import READ
from pages.ui.figures.induction_scores import ABOUT, TITLES
from pages.ui.figures.sheet import Sheet
from pages.ui.head import charts, tables
from pages.ui.head.measuring import Known, draw_missing
from pages.ui.page.presentation import presenting
from pages.ui.page.tables import number

STRIP, PROBE, TEXT = "Scores among all heads", "Pattern on random tokens", "Pattern in a text"
STRIP_HELP = "Each tick is a head, the dot is this one; every row has its own scale. " + " ".join(
    f"*{title}*: {ABOUT[score][0].lower()}{ABOUT[score][1:]}" for score, title in TITLES.items()
)
PROBE_HELP = (
    "A beginning and 25 random tokens, four times over, the first of the ten that the prefix-matching score is "
    "measured on. An induction head looks from a token at what followed its earlier copies: along the dotted lines."
)
TEXT_HELP = f"“{READ}”. Along the dotted line a previous-token head looks; the left edge is the first token."
SHORT_OF = {"bansal": "Bansal's variant"}


def draw_portrait(known: Known, sheet: Sheet) -> None:
    """Draws them."""
    found = known.found
    wraps = st.container(key="wraps portrait")
    strip_at, probe_at, text_at = wraps.columns([16 if presenting() else 11, 9, 9], gap="medium")
    with strip_at:
        st.subheader("Among all heads", help=STRIP_HELP)
        draw_missing(known, "scores")
        if VARIANTS[0] in found.scores:
            strip = charts.score_strip(tables.score_rows(found))
            sheet.draw(STRIP, strip, "head strip", tables.scores_in_words(found))
            for variant in [each for each in found.scores if each != VARIANTS[0]]:
                both = [f"{TITLES[each]} {number(found.score(each, variant))}, rank {found.rank(each, variant)}"
                        for each in ("prefix_matching", "copying")]  # fmt: skip
                st.caption(f"{SHORT_OF[variant]}: {'; '.join(both)}.")
    with probe_at:
        st.subheader("On random tokens", help=PROBE_HELP)
        draw_missing(known, "probe")
        if found.probe is not None:
            n, period = len(found.probe.pieces), found.probe.period
            offsets = tuple(copies * period - 1 for copies in range(1, (n - 1) // period))
            words = f"Prefix matching {number(found.score('prefix_matching'))} of its attention."
            drawn = charts.pattern_map(tables.probe_cells(found.probe), n, offsets)
            sheet.draw(PROBE, drawn, "head probe", words)
    with text_at:
        st.subheader("In a text", help=TEXT_HELP)
        draw_missing(known, "texts")
        if READ in found.texts:
            seen = found.texts[READ]
            drawn = charts.pattern_map(tables.text_cells(seen), len(seen.token_ids), (1,))
            sheet.draw(TEXT, drawn, "head text", tables.rests_in_words(seen))
