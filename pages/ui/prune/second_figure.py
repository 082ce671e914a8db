"""The second model of the Prune screen on screen: next to the first one's figure, and under its curve."""

from functools import partial

import streamlit as st

from engine.importance.rankings_of import Axis
from pages.ui.controls.selection import compared
from pages.ui.controls.sidebar import look_for_model
from pages.ui.page.marks import mark
from pages.ui.page.runtime import jobs
from pages.ui.page.tables import plain
from pages.ui.page.work import live
from pages.ui.prune import dragging
from pages.ui.prune import second_model as seconds
from pages.ui.prune.estimates import pruned_in_words
from pages.ui.prune.jobs import curve_work
from pages.ui.prune.screen import PruneResult, PruneScreen
from pages.ui.prune.tables import lacks_levels

HELP = (
    "The same questions, each model pruned at the levels above in its own order: of layers, too, each drops the same "
    "share, by its own order. Only this one right: questions that "
    "the other gets wrong; p is McNemar's exact test of those, the interval of the difference is Bonett and Price's. "
    "Chosen in the sidebar, under “Compare with”."
)
CURVE_HELP = "Every tenth of this level by the second model, in the background."


def draw_second_model(screen: PruneScreen, shown: PruneResult) -> None:
    """Draws the second model's results so far, if one is chosen; it is measured after the first one."""
    if screen.whole and not shown.postponed:
        spec = compared(screen.study.setup.spec)
        target = None if spec is None else look_for_model(screen.study.setup, spec)
        shown.compared = None if target is None else seconds.SecondModel(shown.x, target)
    if shown.compared is None:
        return
    second = shown.compared
    if dragging.moving():
        jobs().drop(seconds.SLOT)
    elif shown.x.is_complete(shown.measured) and not second.x.is_complete(second.answers) and not second.asks:
        second.work.start()
    live([seconds.SLOT, "accuracy"], partial(_draw, shown), screen.since_s)


def _draw(shown: PruneResult) -> None:
    of, found = shown.compared, shown.measured
    if of is None:
        return
    name = plain(of.names[1])
    if dragging.moving():
        st.markdown(f":small[{name}: follows when you release the slider]")
        return
    second = of.answers
    value, lines = seconds.figure(found, second, of.names)
    if value:
        st.metric(f"{name}: questions right", value)
        lines.append(pruned_in_words(of.x, of.known, second.mask))
        st.markdown("  \n".join(f":small[{line}]" for line in lines), help=HELP)
        state = "measured" if of.x.is_complete(second) else "measuring"
        mark("second figure", state, model=of.names[1], questions=len(second.pruned or ()), of=of.x.questions.n)
    if of.note:
        st.caption(plain(of.note))
    if not shown.x.is_complete(found):
        st.caption(f"{name} follows once {plain(of.names[0])} is measured.")
    elif not of.x.is_complete(second):
        work = of.work
        if not work.line() and of.asks:
            work.offer(f"Measure {name}", "compare_arrows", "Its own order first, then its answers.")


def draw_curve_of_second(shown: PruneResult, axis: Axis) -> None:
    """Draws the progress of the second model's curve, or the button that measures it."""
    of = shown.compared
    if of is None or dragging.moving():
        return
    work = curve_work(of.x, axis, of.known, seconds.CURVE, f"Curve of {of.names[1]}")
    if not work.line() and lacks_levels(of.curve(axis)):
        work.offer(f"Measure the curve of {plain(of.names[1])}", "timeline", CURVE_HELP)
