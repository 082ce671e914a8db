"""The In context screen: how much better later tokens of a text are predicted, how much of that remains after pruning,
and which heads cause it."""

import time
from contextlib import nullcontext
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from engine.heads.ablation import KINDS
from engine.heads.induction import induction
from engine.importance.rules import Evidence
from engine.texts.incontext import MIN_TOKENS
from engine.texts.passages import texts_of
from pages.ui.controls import carried
from pages.ui.controls.sidebar import wait_for_model
from pages.ui.controls.study import chosen
from pages.ui.controls.texts import OWN_FILE
from pages.ui.downloads.footer import closing
from pages.ui.figures.empty import draw_sketch, empty_state
from pages.ui.figures.sheet import Sheet
from pages.ui.in_context import sections, setting, together
from pages.ui.in_context.first_view import first_choices
from pages.ui.in_context.tables import head_frame, scores_csv
from pages.ui.page.address import one_among, put_right
from pages.ui.page.job_words import LONG_S, cost_in_words
from pages.ui.page.marks import counts, mark
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import end_run, errors_shown, first_figure_s, require_frame, session
from pages.ui.page.widget_writes import write
from pages.ui.page.work import Work, live

require_frame("pages/in_context.py")
ABLATE_HELP = (
    f"{{:,}} passes over texts of {MIN_TOKENS} tokens, in the background, text by text. Finished texts are shown and "
    "stored."
)
PARTS = ["Are they induction heads?", "Top heads together", "Slope of the loss"]
SHORT = f"Ablating heads needs {MIN_TOKENS} tokens at once; this model reads {{}}."
ANSWERS = "Prune scores the answers alone."
SHOWS = "You will see how the loss falls along a text, in the full and in the pruned model."
LOSSES_HELP = "Two passes over each text, in the background. Finished texts are shown and stored."
FEWER_HELP, START = "Fewer texts, wider intervals. Settings takes more.", "incontext start"  # in the session: clicked


def start_fewer(n: int) -> None:
    """Measures so many texts in place of all."""
    write("incontext_texts", n)
    st.session_state[START] = True


setup, finding_at = chosen(), st.container(key="incontext_finding")
with errors_shown():
    controls = sections.choose(setup.data_dir, setup.spec.is_demo)
source = controls.source
if source is None:
    end_run()

target = wait_for_model(setup)
with errors_shown():
    pruning = controls.levels.pruning(target.shape)
texts = Work("incontext texts", "Texts", texts_of(target, source, setup.data_dir)).required()
x = setting.InContextControls(target, setup.data_dir, source, texts, pruning)
since_s = time.monotonic()
losses = Work("incontext", "Losses", setting.losses(x), while_seen=True)
takes_s, most_s = losses.takes_s(), max(LONG_S, first_figure_s())
is_started = st.session_state.pop(START, False) or losses.now() is not None
asks = not is_started and setting.is_long(x, takes_s, most_s)
if not asks:
    losses.value()
mask = pruning.known_mask(target.shape, Evidence()) or (losses.found.mask if losses.found is not None else None)
if mask is None:
    mark("badge", "reserved", controls.badge_at)  # an empty container has no height
elif mask.is_full:
    controls.badge_at.caption("Nothing is pruned: move the slider.")
carried.hand_on("incontext", target.shape, mask, controls.badge_at, controls.is_first)
if asks:
    demo = {} if setup.spec.is_demo else {"model": "demo", "precision": "int8", **first_choices((), (), True)}
    with empty_state("curves", SHOWS, True, demo):
        losses.offer("Measure the losses", "timeline", LOSSES_HELP, by_size=True, type="primary")
        if n := setting.fewer_texts(x, takes_s, most_s):
            label = f"Measure {n} texts{cost_in_words(takes_s and takes_s * n / len(texts))}"
            st.button(label, on_click=start_fewer, args=(n,), help=FEWER_HELP)
    closing(setting.origin(x, mask, controls.kind, controls.fill, controls.around), Sheet())
    end_run()


def so_far() -> setting.LossesSoFar:
    """Returns the results for this setting so far, of the same texts by both models."""
    return (losses.found or setting.LossesSoFar()).alike


def draw_gain() -> None:
    """Draws the large figure, again while texts are measured."""
    found = so_far()
    sections.figures(found, controls.around, len(texts))
    if found.full:
        losses.line()  # where it moves nothing


def draw_curve() -> None:
    """Draws the curve, again while texts are measured."""
    found = so_far()
    known = found.full if found.mask is not None and found.mask.is_full else found.in_both[0]
    mark("scores", "measured" if len(known) == len(texts) else "measuring", texts=len(known), **counts(found.mask))
    if target.shape.n_ctx < MIN_TOKENS:
        st.caption(sections.SHORT_WINDOW.format(target.shape.n_ctx))
    if presenting() or not found.full:
        losses.line()
    if found.full:
        sections.loss_curve(found, controls.around, sheet)
    elif losses.under_way:
        draw_sketch("plot", "curve")


def ablated() -> tuple[dict[str, Any], int]:
    """Returns the ablations so far, of all results the one of most texts, and the number of these texts."""
    found = max(({}, *stored, heads.found or {}), key=lambda each: len(each[KINDS[0]].base) if each else 0)
    return found, len(found[KINDS[0]].base) if found else 0


def head_rows(found: dict[str, Any]) -> pd.DataFrame:
    """Returns what each head causes, and its induction score if that is measured."""
    return head_frame(target.shape, found, so_far(), kind, controls.around, induction(target).stored(session()))


def draw_map() -> None:
    """Draws which heads cause the gain, again while they are ablated."""
    found, n_done = ablated()
    n_passes = 2 * len(texts) * (target.shape.n_heads_total + 1)
    label = f"Ablate {target.shape.n_heads_total:,} heads, one at a time"
    if not heads.line() and n_done < len(texts):
        is_empty = empty_state("", sections.HEADS_SHOW, heads.is_read, key="empty heads")
        with nullcontext() if n_done else is_empty:
            heads.offer(label, "science", ABLATE_HELP.format(n_passes), by_size=True)
    if n_done:
        sections.draw_heads(head_rows(found), kind, len(texts), sheet)
        mark("ablations", "measured" if n_done == len(texts) else "missing", texts=n_done, kind=kind)


def draw_scatter() -> None:
    """Draws whether these heads are induction heads, again while they are ablated."""
    found, n_done = ablated()
    if n_done:
        sections.draw_scatter(head_rows(found), kind, sheet)
    else:
        st.caption(sections.ABLATE_FIRST)


sheet = Sheet()
kind, fill = controls.kind, controls.fill
heads = Work("incontext heads", "Ablations", setting.ablations(x, fill), 2)
stored = heads.stored() if target.shape.n_ctx >= MIN_TOKENS else []
if presenting():  # a slide has the finding, with the same numbers; the sections below are not on it
    live(["incontext"], draw_curve, since_s)
else:
    gain_at, curve_at = st.container(key="wraps curves").columns([4, 8], gap="medium")
    with gain_at:
        live(["incontext"], draw_gain, since_s)
        if target.shape.n_ctx < MIN_TOKENS:
            st.caption(SHORT.format(target.shape.n_ctx))
        else:
            live(heads.watched(), draw_map, since_s)
    with curve_at:
        live(["incontext"], draw_curve, since_s)
    put_right("incontext_part", "Part", one_among(PARTS))
    bound: dict[str, Any] = {"on_change": "rerun", "bind": "query-params"}
    scatter_at, together_at, slope_at = st.tabs(PARTS, key="incontext_part", **bound)
    with scatter_at:
        live(heads.watched(), draw_scatter, since_s)
    with together_at:
        together.draw(x, controls.around, sheet, st.session_state.get("incontext_part") == PARTS[1])
    with slope_at:
        if (known := so_far()).full:
            sections.loss_slope(known, sheet)
known = induction(target).stored(session())
said = sections.finding(so_far(), controls.around, len(texts), known)
sections.draw_finding(finding_at, said)
if source.kind == "task" and not presenting():
    finding_at.page_link(
        "pages/prune.py", label=ANSWERS, icon=":material/content_cut:", query_params={"task": source.name}
    )
sheet.tables["Scores by text"] = partial(scores_csv, so_far(), texts, controls.around)
origin = setting.origin(x, so_far().mask, kind, fill, controls.around)
sheet.says = [said] if said else []
closing(origin, sheet)
if x.source.kind == "text" and not presenting():
    st.caption(OWN_FILE)
