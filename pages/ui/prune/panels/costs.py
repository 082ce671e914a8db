"""The Prune screen's cost panel: size of the layers under a mask, seconds a question, masked and sliced, and the speed
and memory of the model."""

from functools import partial

import streamlit as st

from engine.accuracy.costs import cost
from engine.models.masks import Mask
from engine.requests import MeasureSpeed
from engine.views.pruned import cost_view
from pages.ui.downloads.origin import of_model
from pages.ui.page.runtime import in_memory, session
from pages.ui.page.tables import mask_in_words
from pages.ui.page.work import Work, live
from pages.ui.prune.experiment import Experiment
from pages.ui.prune.state import PruneState
from pages.ui.sections.section import Section, draw_section, draw_table_of

SLOT = "cost"
HELP = (
    "Masked: everything is computed, and pruned components are set to 0. Sliced: they are not computed; this is "
    "how accuracy is measured here. Settings count the embeddings too."
)
SHOWS = "Tokens a second of a prompt and after it, full and pruned in turn, and the memory of weights and cache."


def draw_savings(state: PruneState) -> Section | None:
    """Draws the panel's inside; returns its section, if the mask is known."""
    if state.mask is None:
        st.caption("Which heads and FFNs go is not known before importance is measured.")
        return None
    live([SLOT], partial(_draw_costs, state.x, state.mask), state.since_s)
    wanted = MeasureSpeed(**of_model(state.x.target), mask=state.mask.text())
    section = Section("Speed and memory", wanted, state.x.target, SHOWS, starts="on request")
    draw_section("prune", section, state.sheet, state.since_s)
    return section


def _draw_costs(x: Experiment, mask: Mask) -> None:
    """The upper half: what is stored of the mask that is set, and the job that measures the rest."""
    wanted = partial(cost, x.target, x.questions, mask)
    found = wanted().stored(session()) or wanted(timed=False).stored(session())
    sizes, times = (Work(SLOT, "Cost", each, 1) for each in (wanted(timed=False), wanted(again=True)))
    st.markdown(f"{mask_in_words(x.shape, mask)}.", help=HELP)
    if found is not None:
        view = cost_view(found, mask)
        draw_table_of(view.parts[0])
        st.caption("  \n".join(view.notes))
    if sizes.line() or times.line():
        return
    if found is None and sizes.now() is None and in_memory(x.target.spec):
        sizes.start()  # they take a moment
        st.rerun()
    label = "Measure the time again" if found is not None and found.seconds else "Measure the time"
    times.offer(label, "timer", "A few questions, masked and sliced in turn, in the background.")
