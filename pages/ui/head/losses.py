"""Losses without the head on tasks and in context, and its rank by every criterion."""

import streamlit as st

from engine.studies.one_head import CRITERIA
from pages.ui.figures.sheet import Sheet
from pages.ui.head import charts, tables
from pages.ui.head.measuring import Known, draw_missing
from pages.ui.page.tables import number

EFFECTS, PLACES = "Tasks without the head", "Rank by criterion"
HELP = (
    "Accuracy with this head alone ablated (z = 0) less that of the full model, on the same questions, with the 95% "
    "interval of the paired change; p is McNemar's exact test."
)
PLACES_HELP = (
    "Each criterion orders all heads by the task's train questions; 1 is the most important. `I_h`: Bansal et al.'s "
    "gradient score. `gate`: |dLoss/dgate|, Michel et al. `Ablation oracle`: accuracy lost without the head."
)
CONTEXT_HELP = "Loss around the 500th token less that around the 50th (± 10), on solved questions of the first task."


def section(known: Known, sheet: Sheet) -> None:
    """Draws the section."""
    found = known.found
    effects, places = tables.effect_rows(found), tables.place_rows(found)
    if not known.asked.tasks:
        st.caption("Choose a task under Settings to see its accuracy without the head.")
        return
    sheet.add(EFFECTS, effects)
    sheet.add(PLACES, places)
    effects_at, places_at = st.container(key="wraps losses").columns(2, gap="large")
    with effects_at:
        st.subheader("Losses without it", help=HELP)
        draw_missing(known, "tasks")
        if len(effects):
            words = tables.effects_in_words(effects)
            sheet.draw(EFFECTS, charts.effects(effects), "head effects", words)
            st.caption(words)
        draw_missing(known, "context")
        if found.context is not None:
            score, change = found.context
            ends = f"{number(change.low, sign=True)} to {number(change.high, sign=True)}"
            moved = number(change.value, sign=True)
            said = f"In-context-learning score {number(score.value)} nats; without the head **{moved}**"
            st.markdown(f"{said} ({ends}, {change.n} texts).", help=CONTEXT_HELP)
    with places_at:
        st.subheader("How important it is", help=PLACES_HELP)
        if len(places):
            sheet.draw(PLACES, charts.places(places), "head places", tables.places_in_words(places))
        draw_missing(known, *CRITERIA)
