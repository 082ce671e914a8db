"""The Attention screen: point at a token, and see where heads look from it and which tokens raised its logit."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import streamlit as st

from engine.heads.attention import head_views, overview, recall_head_views, recall_overview
from engine.heads.induction import induction, recall_induction
from engine.jobs import Progress
from engine.models.masks import parse_mask
from engine.texts.passages import text_digest
from pages.ui.attention import tables as attention_frames
from pages.ui.attention.details import draw_details
from pages.ui.attention.view import asked_heads, attention_view, hand_over, overview_packet, pattern_packet
from pages.ui.shared.controls import type_mask
from pages.ui.shared.runtime import errors_shown, jobs, models, require_frame, store
from pages.ui.shared.sidebar import chosen, identity, identity_slot
from pages.ui.shared.texts import choose_text
from pages.ui.shared.work import AT_ONCE_S, live, unfinished_line, wait_for

require_frame("pages/attention.py")
PRESETS = {  # what is to be seen, the passage, the only tokens to point at, icon
    "Literal copying": ("Privet Drive, twice", "", ":material/content_copy:"),
    "Translation": ("Three languages", "", ":material/translate:"),
    "Pattern labels": ("Pattern labels", ":", ":material/label:"),
}
CAPTION = """:red[**Red**]: where the chosen heads attend from the token you point at. :blue[**Blue bar**]: which
earlier tokens raised its logit, by the direct path: attention × value through W_O and the unembedding, the mean over
all tokens taken off. Blue is read at the position just before, where the model says what comes next; set to “the one
after it”, at the token itself."""


def use_preset(title: str) -> None:
    """Sets the controls as the preset has them, with the heads that suit it."""
    st.session_state.attention_text, st.session_state.attention_rows = PRESETS[title][:2]
    st.session_state.attention_heads = ""


def measured(slot: str, key: str, run: Callable[[], Iterator[Progress]], priority: int, patience_s: float) -> Any:
    """What the slot's job of this key, started if need be, has found; None while it is under way."""
    jobs().submit(slot, key, run, priority)
    job = jobs().join(slot, patience_s)
    return job.value if job is not None and job.key == key and job.state == "done" else None


def waited_for(slot: str, key: str, run: Callable[[], Iterator[Progress]], name: str) -> Any:
    """What the slot's job has found; until then its progress stands in place of what comes below."""
    since_s = time.monotonic()
    if (found := measured(slot, key, run, 0, AT_ONCE_S)) is None:
        start = partial(jobs().submit, slot, key, run)
        live([slot], partial(unfinished_line, slot, key, name, start), since_s)
        st.stop()
    return found


def set_heads() -> None:
    """Writes what was clicked into the field, and so into the address."""
    st.session_state.attention_heads = ",".join(asked_heads())


setup = chosen()
text_at, mask_at, rows_at = st.columns([6, 3, 2], vertical_alignment="bottom")
text = choose_text("attention", text_at, default="Privet Drive, twice")
mask_text = type_mask("attention", mask_at)
rows = rows_at.text_input(
    "Only these tokens", key="attention_rows", bind="query-params", placeholder="all",
    help="Such as `:`. Only tokens that read like this can be pointed at.",
).strip()  # fmt: skip
with st.container(horizontal=True, vertical_alignment="center"):
    for title, (passage, _, icon) in PRESETS.items():
        st.button(title, icon=icon, on_click=use_preset, args=(title,), help=f"The passage “{passage}”.")
if text is None:
    st.stop()
identity(setup.spec)
model = wait_for(identity_slot(setup.spec), "Reading the model's files", partial(identity, setup.spec, again=True))
with errors_shown():
    mask = parse_mask(mask_text, model.shape)
since_s = time.monotonic()
of = f"{setup.spec} {model.digest} bos={setup.bos} {mask.key()} {text_digest(text.text)}"
what = (setup.spec, text.text, mask, setup.bos, store())
seen = recall_overview(model, *what) or waited_for("attention", of, partial(overview, models(), *what), "Text")
score = ("attention induction", f"{setup.spec} {model.digest}",
         partial(induction, models(), setup.spec, "olsson", 0, store()), 1)  # fmt: skip
found = recall_induction(model, setup.spec, "olsson", 0, store()) or measured(*score, patience_s=0)
scores = None if found is None else found.mean["prefix_matching"]
if seen.n_left_out:
    st.caption(f"The first {len(seen.ends):,} tokens; {seen.n_left_out:,} more do not fit the model's window.")
packet = overview_packet(of, text.name, seen, mask, scores, rows)


@st.fragment
def draw_view() -> None:
    """The view; another head redraws this part alone."""
    problem_at, view_at = st.container(), st.container()
    about_at, heads_at = st.columns([5, 3], gap="medium")
    about_at.caption(CAPTION)
    typed = heads_at.text_input(
        "Heads", key="attention_heads", bind="query-params", placeholder="such as L1H0,L1H3",
        help="Or click them on the map. Of several heads you see their mean attention and the sum of their nats.",
    )  # fmt: skip
    with view_at:
        attention_view(packet, set_heads)
    with problem_at, errors_shown():
        heads = attention_frames.parse_heads(typed, model.shape)
    heads = heads or attention_frames.default_heads(seen, scores, rows)
    names = attention_frames.names_of(heads)
    views = recall_head_views(model, *what[:3], heads, *what[3:]) or waited_for(
        "attention heads", f"{of} {names}", partial(head_views, models(), *what[:3], heads, *what[3:]), "Heads"
    )
    view = attention_frames.combined([views[head] for head in heads])
    hand_over(pattern_packet(of, names, view))
    draw_details(setup, text, mask, seen, view, names)


if found is None:
    line = partial(unfinished_line, *score[:2], "Induction scores for the map", partial(jobs().submit, *score))
    live(score[:1], line, since_s)
draw_view()
