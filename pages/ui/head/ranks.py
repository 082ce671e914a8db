"""Its place among all heads: by each induction score, and by each criterion of importance."""

import streamlit as st

from engine.heads.induction import VARIANTS
from engine.importance.criteria import CRITERIA
from pages.ui.figures.induction_scores import ABOUT, TITLES
from pages.ui.figures.sheet import Sheet
from pages.ui.head import charts, tables
from pages.ui.head.measuring import Known, draw_missing
from pages.ui.page.tables import number

STRIP, PLACES = "Scores among all heads", "Rank by criterion"
STRIP_HELP = "Each tick is a head, the dot this one. Right: value and rank. "
STRIP_HELP += " ".join(f"*{TITLES[score]}*: {ABOUT[score]}" for score in tables.ON_STRIP)
STRIP_HELP += (
    f" The download has two more, by weights alone, and kinds of heads it scores under {tables.NOTICEABLE} for."
)
PLACES_HELP = (
    "Both order all heads by the task's train questions. Measured: the accuracy lost when just that head is pruned. "
    "Gradient: |z · gradient|, which estimates it. The download has the other criteria."
)
SHORT_OF = {"bansal": "Bansal's variant"}


def section(known: Known, sheet: Sheet) -> None:
    """Draws the section."""
    strip_at, places_at = st.container(key="wraps ranks").columns(2, gap="large")
    with strip_at:
        _draw_scores(known, sheet)
    with places_at:
        _draw_importance(known, sheet)


def _draw_scores(known: Known, sheet: Sheet) -> None:
    found = known.found
    kinds = [f" *{CRITERIA[name].label}*: {CRITERIA[name].help.partition(';')[0]}." for name in found.kinds]
    st.markdown("**What it does**, among all heads (each row on its own scale)", help=STRIP_HELP + "".join(kinds))
    draw_missing(known, "scores")
    if VARIANTS[0] not in found.scores:
        return
    sheet.draw(STRIP, charts.score_strip(tables.score_rows(found)), "head strip", tables.scores_in_words(found))
    for variant in [each for each in found.scores if each != VARIANTS[0]]:
        both = [f"{TITLES[each]} {number(found.score(each, variant))}, rank {found.rank(each, variant)}"
                for each in ("prefix_matching", "copying")]  # fmt: skip
        st.caption(f"{SHORT_OF[variant]}: {'; '.join(both)}.")


def _draw_importance(known: Known, sheet: Sheet) -> None:
    st.markdown("**How important it is**, among all heads", help=PLACES_HELP)
    if not known.asked.tasks:
        st.caption("Choose a task under Settings to see its rank by each criterion.")
        return
    places = tables.place_rows(known.found)
    sheet.add(PLACES, places)
    shown = tables.shown_places(places)
    if len(shown):
        sheet.draw(PLACES, charts.places(shown), "head places", tables.places_in_words(shown))
    draw_missing(known, "heads-oracle", "heads-one-divisor")
