"""What is lost without the head, on tasks and in context."""

import streamlit as st

from engine.texts.passages import LOG_BOOKS
from pages.ui.figures.sheet import Sheet
from pages.ui.head import charts, tables
from pages.ui.head.measuring import Known, draw_missing

EFFECTS = "Tasks without the head"
HELP = (
    "Accuracy with this head alone ablated (z = 0) less that of the full model, on the same questions, with the 95% "
    "interval of the paired change; p is McNemar's exact test."
)
CONTEXT_HELP = (
    "Loss around the 50th token minus that around the 500th (± 10): above 0, later tokens are predicted better. Over "
    f"the {LOG_BOOKS.n_texts} windows of “{LOG_BOOKS.name}” that the In context screen opens with."
)


def section(known: Known, sheet: Sheet) -> None:
    """Draws the section."""
    effects_at, context_at = st.container(key="wraps losses").columns(2, gap="large")
    with effects_at:
        _draw_effects(known, sheet)
    with context_at:
        _draw_context(known)


def _draw_effects(known: Known, sheet: Sheet) -> None:
    found = known.found
    st.markdown("**Accuracy without it**", help=HELP)
    if not known.asked.tasks:
        st.caption("Choose a task under Settings to see its accuracy without the head.")
        return
    effects = tables.effect_rows(found)
    sheet.add(EFFECTS, effects)
    draw_missing(known, "tasks")
    if len(effects):
        sheet.draw(EFFECTS, charts.effects(effects), "head effects", tables.effects_in_words(effects))


def _draw_context(known: Known) -> None:
    st.markdown("**In-context gain without it**", help=CONTEXT_HELP)
    draw_missing(known, "context")
    if known.found.context is not None:
        st.markdown(tables.context_in_words(known.found.context))
