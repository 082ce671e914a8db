"""The Attention screen: point at a token, and see where heads look from it and which tokens raised its logit."""

import time
from typing import Any

import streamlit as st

from engine.heads.attention import Overview, head_views, overview
from engine.heads.induction import induction
from engine.models.masks import parse_heads, parse_mask
from engine.texts.passages import text_digest
from pages.ui.attention.details import draw_details
from pages.ui.attention.tables import combined, default_heads, kind_in_words, names_of, pruned_in_words
from pages.ui.attention.view import SWITCHES, asked_heads, attention_view, hand_over, overview_packet, pattern_packet
from pages.ui.controls import carried
from pages.ui.controls.controls import settings_menu, type_mask
from pages.ui.controls.heads import open_heads
from pages.ui.controls.sidebar import wait_for_model
from pages.ui.controls.study import chosen
from pages.ui.controls.texts import Chosen, choose_text
from pages.ui.figures.empty import unread_text
from pages.ui.page.address import unseen_field
from pages.ui.page.runtime import end_run, errors_shown, require_frame, session
from pages.ui.page.widget_writes import write
from pages.ui.page.work import Work, live

require_frame("pages/attention.py")
TRANSLATION = "Translation"  # the demo model, trained on English only, translates nothing
PRESETS = {  # what to see, the passage, the only tokens that can be pointed at, icon
    "Literal copying": ("Privet Drive, twice", "", ":material/content_copy:"),
    TRANSLATION: ("Three languages", "", ":material/translate:"),
    "Pattern labels": ("Pattern labels", ":", ":material/label:"),
}
SCORES, SCORES_HELP = (
    "Induction scores for the map",
    "As on the Induction screen: the map marks heads that match prefixes.",
)
CAPTION = "Click a token to hold it, and a head on the map to change the head."
CAPTION_HELP = (
    "Orange is the direct path: attention × value through W_O and the unembedding, minus the mean over all tokens. It "
    "is read where the model predicts the token: at the token before it. Of several heads (Shift-click) you see the "
    "mean attention and the sum of the nats."
)


def use_preset(title: str) -> None:
    """Sets the controls to the preset's values; the chosen heads stay."""
    st.session_state.attention_text, st.session_state.attention_rows = PRESETS[title][:2]
    write(SWITCHES, "")


def draw_score() -> None:
    """Draws the progress of the scores for the map, or the button that measures them."""
    if not score.line() and score.now() is None:
        score.offer(f"Measure {SCORES.lower()}", "repeat", SCORES_HELP)


def set_heads() -> None:
    """Writes the clicked heads into the field, and so into the address."""
    write("attention_heads", ",".join(asked_heads()))


setup = chosen()
text_at, presets_at, menu_at = st.columns([9, 11, 3], vertical_alignment="bottom")
text, menu = choose_text("attention", text_at, default="Privet Drive, twice"), settings_menu(menu_at, "attention")
mask_text = type_mask("attention_mask", menu)
about = "Such as `:`. Only tokens that read like this can be pointed at."
look: dict[str, Any] = {"placeholder": "all", "help": about, "bind": "query-params"}
rows = (menu.text_input("Only these tokens", key="attention_rows", **look) or "").strip()
with presets_at.container(horizontal=True, vertical_alignment="center"):
    for title, (passage, _, icon) in PRESETS.items():
        if title == TRANSLATION and setup.spec.is_demo:
            continue
        st.button(title, icon=icon, on_click=use_preset, args=(title,), help=f"The passage “{passage}”.")
badge_at = st.container()
if text is None:
    end_run()
target = wait_for_model(setup)
with errors_shown():
    mask = parse_mask(mask_text, target.shape)
carried.hand_on("attention", target.shape, mask, badge_at)
of = f"{target} {mask.key()} {text_digest(text.text)}"
whole = overview(target, text.text, mask)
seen = whole.stored(session()) or Work("attention", "Text", whole, while_seen=True).awaited()
if seen is None:
    unread_text(text.text)
    end_run()
wanted = induction(target)
score = Work("attention induction", SCORES, wanted, 3, while_seen=True)
since_s = time.monotonic()
found = wanted.stored(session())
scores = None if found is None else found.mean["prefix_matching"]
if seen.n_left_out:
    st.caption(f"The first {len(seen.ends):,} tokens; {seen.n_left_out:,} more do not fit the model's window.")
packet = overview_packet(of, text.name, seen, mask, scores, rows)


@st.fragment
def draw_view(text: Chosen, seen: Overview) -> None:
    """Draws the view; choosing another head redraws only this part."""
    finding_at = st.container(key="finding-line")
    above = st.container(horizontal=True, vertical_alignment="center")
    above.container(key="slide-leaves-out-hint", width="content").caption(CAPTION, help=CAPTION_HELP)
    problem_at, view_at = st.container(), st.container()
    typed = unseen_field("Heads", "attention_heads", str)
    with view_at:
        look = attention_view(packet, set_heads, f"{text_digest(text.text)} {rows}")
    with problem_at, errors_shown():
        heads = parse_heads(typed, target.shape)
    heads = heads or default_heads(seen, scores, rows)
    names = names_of(heads)
    asked = head_views(target, text.text, mask, heads)
    views = asked.stored(session()) or Work("attention heads", "Heads", asked, while_seen=True).required()
    view = combined([views[head] for head in heads])
    hand_over(pattern_packet(of, names, view, look))
    kind = "" if found is None else kind_in_words(heads, found)
    if says := " ".join(filter(None, [kind, pruned_in_words(heads, mask)])):
        finding_at.markdown(says)
    open_heads(names, above)
    draw_details(target, text, mask, seen, view, names)


if found is None:
    if score.now() is None:
        score.start_ahead()  # background work
    live([score.slot], draw_score, since_s)
draw_view(text, seen)
