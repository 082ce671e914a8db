"""Its place among all heads: by each induction score, and by each criterion of importance."""

import streamlit as st

from engine.heads.induction import VARIANTS
from engine.importance.rankings import CRITERIA
from engine.studies.one_head import CRITERIA as OF_TASK
from pages.ui.figures.induction_scores import ABOUT, TITLES
from pages.ui.figures.sheet import Sheet
from pages.ui.head import charts, tables
from pages.ui.head.measuring import Known, draw_missing
from pages.ui.page.tables import number

STRIP, PLACES = "Scores among all heads", "Rank by criterion"
STRIP_HELP = "Each tick is a head, the dot this one; each row has its own scale. Right: value and rank. "
STRIP_HELP += " ".join(f"*{TITLES[score]}*: {ABOUT[score]}" for score in tables.ON_STRIP)
STRIP_HELP += " The download has two more, by weights alone."
PLACES_HELP = (
    "Each criterion orders all heads by the task's train questions. Importance: |z · gradient|, Bansal et al. Taylor: "
    "|dLoss/dgate|, Michel et al. Wanda: |weight| times its input. The download has two more."
)
WHY = {"Gradient": "Gradients estimate what is lost.", "Size": "Size ignores the task."}
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
    st.markdown("**What it does**, among all heads", help=STRIP_HELP + "".join(kinds))
    if VARIANTS[0] not in found.scores:  # the button is with the large figure
        st.caption("Its induction scores are not measured yet.")
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
        st.markdown(tables.ranks_in_short(shown))
        sheet.draw(PLACES, charts.places(shown), "head places", tables.places_in_words(shown))
        st.caption(" ".join(words for asks, words in WHY.items() if shown["criterion"].str.startswith(asks).any()))
    draw_missing(known, *OF_TASK)
