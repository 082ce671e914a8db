"""What is lost without the head, on tasks and in context."""

import streamlit as st

from pages.ui.figures.sheet import Sheet
from pages.ui.head import charts, idealised, tables
from pages.ui.head.measuring import Known, draw_missing
from pages.ui.page.tables import number

EFFECTS = "Tasks without the head"
HELP = (
    "Accuracy with this head alone ablated (z = 0) less that of the full model, on the same questions, with the 95% "
    "interval of the paired change; p is McNemar's exact test."
)
CONTEXT_HELP = "Loss around the 500th token less that around the 50th (± 10), on solved questions of the first task."


def section(known: Known, sheet: Sheet) -> None:
    """Draws the section."""
    effects_at, ideal_at = st.container(key="wraps losses").columns(2, gap="large")
    with effects_at:
        _draw_effects(known, sheet)
    with ideal_at:
        idealised.section(known, sheet)


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
        words = tables.effects_in_words(effects)
        st.markdown(words)
        sheet.draw(EFFECTS, charts.effects(effects), "head effects", words)
    draw_missing(known, "context")
    if found.context is not None:
        score, change = found.context
        ends = f"{number(change.low, sign=True)} to {number(change.high, sign=True)}"
        moved = number(change.value, sign=True)
        said = f"In-context-learning score {number(score.value)} nats; without the head **{moved}**"
        st.markdown(f"{said} ({ends}, {change.n} texts).", help=CONTEXT_HELP)
