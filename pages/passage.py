"""The Passage screen: a text, token by token, as two models read it; the sliders move its colours."""

from dataclasses import replace
from functools import partial

import streamlit as st

from engine.models.masks import Mask, parse_mask
from engine.texts.passages import as_chat
from engine.texts.tokenloss import TokenLosses, have_same_tokens
from pages.ui.controls import carried
from pages.ui.controls.controls import choose_chat, settings_menu
from pages.ui.controls.pruning import choose_pruning
from pages.ui.controls.sidebar import wait_for_model
from pages.ui.controls.study import chosen
from pages.ui.controls.texts import OWN_FILE, choose_text
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.empty import unread_text
from pages.ui.figures.sheet import Sheet
from pages.ui.figures.token_text import component_data, token_text
from pages.ui.page.marks import counts, mark
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import end_run, errors_shown, require_frame, session
from pages.ui.page.tables import mask_counts, plain
from pages.ui.page.work import live
from pages.ui.passage import reading, tables
from pages.ui.passage.charts import difference_bars, tinted_text
from pages.ui.passage.controls import choose_a, choose_colours, largest_tables, offer_example
from pages.ui.passage.reading import PassageRun, so_far

require_frame("pages/passage.py")
SAME = "A and B are the same model: prune something, or change A."
OLD = "B is being measured; the colors show the previous levels."
WAITING = "B is being measured."
OTHER_TOKENS = "{} has another tokenizer: no token pairs to compare. Below is {} alone."
ALONE = "passage alone"  # in the session: text and models whose tokens were found to differ
DRAWN = "passage drawn"  # in the session: the text drawn last
run = PassageRun()


def both() -> tuple[TokenLosses | None, TokenLosses | None, reading.PassageModel | None, str]:
    """Returns (A, B, which model B is, a sentence on its state) for drawing now."""
    a, b = whole_a or so_far(x, "a", x.a), whole_b or so_far(x, "b", b_side)
    if b is not None or a is None:
        return a, b, b_side, SAME if b_side == x.a else ""
    is_old = before is not None and before.target == x.whole.target
    old = x.losses(before).stored(session()) if before is not None and is_old else None
    return a, old, before if old is not None else None, WAITING if old is None else OLD


def without(side: reading.PassageModel) -> str:
    """Returns what B lacks, such as "4 of 48 heads"; "" if that is not all that A and B differ in."""
    is_all = x.a.mask.is_full and x.a.target == side.target
    return mask_counts(side.target.shape, side.mask).replace(", ", " and ") if is_all else ""


def draw_text() -> None:
    """Draws the text with the losses so far, and the progress of the rest."""
    a, b, side, note = both()
    with st.container():  # a separate container: otherwise a change here would redraw the whole text after it
        run.progress()
    if a is None:
        unread_text(x.text)
        return
    if n_parts != tables.n_parts(a.n_total):
        st.rerun()  # its length is known now: the whole page needs it
    if b is not None and not have_same_tokens(a, b):
        st.rerun()  # the whole page then shows the sidebar's model alone
    shown = tables.extended(b, a) if b is not None else a if side == x.a else tables.unread(a)
    mask = side.mask if side is not None and side != x.a else None
    names = {"A": x.a.name} if side is None else {"A": x.a.name, "B": side.name}
    if b is None or side is None or mask is None:
        (said, of_said), (words, help) = ("", None), tables.summary(a)
    else:
        (said, of_said), (words, help) = tables.finding(a, b, without(side)), tables.summary(a, b)
    same = {"B": "the same without them"} if said and side is not None and without(side) else {}
    which = " · ".join(f"{name}: {plain(model)}" for name, model in {**names, **same}.items())
    st.markdown(said or f"**{which}**", help=of_said)
    st.markdown(f"{words} {which}" if said else words, help=help)
    marks = tables.landmarks_of(a, shown, x.landmarks)
    data = component_data(a, shown, tables.part_range(part, a.n_total), marks)
    token_text(
        data, view if mask is not None else "A", full_nats, x.name, a.n_total, note, lock="passage_token", names=names
    )
    measured = b is not None and side == b_side and min(len(a), len(b)) == a.n_total
    mark("losses", "measured" if measured else "measuring", tokens=len(a), **counts(side.mask if side else None))


setup = chosen()
wraps = st.container(key="wraps text")
text_at, slider_at, menu_at = wraps.columns([10, 10, 4], gap="medium", vertical_alignment="bottom")
text, menu = choose_text("passage", text_at), settings_menu(menu_at, "passage")
levels = choose_pruning("passage", setup.data_dir, slider_at, menu, "B: ")
a_spec, a_typed = choose_a(menu, setup)
view, full_nats = choose_colours(menu)
badge_at = st.container(key="passage_badge", horizontal=True, vertical_alignment="center")
awaits_at = st.empty()
if text is None:
    st.info("This text was deleted; choose another.", icon=":material/notes:")
    end_run()
if st.session_state.get(DRAWN) not in (None, (text.name, text.text)):  # dims what still shows the text before
    awaits_at.container(key="passage_awaits").caption(f"Measuring “{plain(text.name)}” …")
target, a_target = wait_for_model(setup), wait_for_model(setup, a_spec)
is_chat = choose_chat("passage", menu, target)
with errors_shown():
    for each in (target, a_target) if is_chat else ():
        as_chat(each, text.text)  # so that an error is shown here
    pruning, a_mask = levels.pruning(target.shape), parse_mask(a_typed, a_target.shape)
a_side, whole = reading.PassageModel(a_target, a_mask), reading.PassageModel(target, Mask.full(target.shape))
pair = text.text, is_chat, a_spec, setup.spec
if st.session_state.get(ALONE) == pair:
    a_side = whole
of_text = (text.name, text.text, () if is_chat else text.landmarks, text.named, is_chat)
x = reading.PassageControls(*of_text, setup.data_dir, a_side, whole, pruning)
whole_a, orders = run.losses(x, "a", x.a), run.order(x)
b_side = x.b(orders) if orders is not None else None
offer_example(badge_at, target, levels, None if b_side is None else b_side.mask)
carried.hand_on("passage", target.shape, None if b_side is None else b_side.mask, badge_at)
whole_b = whole_a if b_side == x.a else run.losses(x, "b", b_side) if b_side is not None else None
before = st.session_state.get("passage_before")
if whole_b is not None:
    st.session_state.passage_before = b_side
a, b, b_shown, _ = both()
if a is not None and b is not None and not have_same_tokens(a, b):
    st.session_state[ALONE], x = pair, replace(x, a=whole)
    whole_a = run.losses(x, "a", whole)
    a, b, b_shown, _ = both()
if st.session_state.get(ALONE) == pair:
    st.info(OTHER_TOKENS.format(plain(a_spec.in_words), plain(setup.spec.in_words)), icon=":material/info:")
    mark("comparison", "other tokens")
part, n_parts = 1, tables.n_parts(a.n_total) if a is not None else 1
if a is not None and n_parts > 1:
    part = st.pagination(n_parts, key=f"passage_part_{n_parts}")
    tokens = tables.part_range(part, a.n_total)
    st.caption(f"Part {part} of {n_parts}: tokens {tokens.start + 1:,} to {tokens.stop:,} of {a.n_total:,}.")
    mark("part", "shown", part=part, of=n_parts, first=tokens.start + 1, last=tokens.stop)
live(list(run.waiting), draw_text, run.since_s)
st.session_state[DRAWN] = text.name, text.text
awaits_at.empty()
if a is None or b is None or b_shown is None:
    end_run()
frame = tables.token_frame(a, b)
bars = partial(difference_bars, frame, full_nats, tables.part_range(part, a.n_total))
# closed, so that a moved slider changes the text and nothing else: the chart alone would cost a tenth of a second
title, icon = "Along the text, and the largest gains and losses", ":material/bar_chart:"
more = st.expander(title, key="passage_more", on_change="rerun", icon=icon)
if more.open:
    draw_chart(bars(), "passage_bars", tables.in_words(frame), more)
    largest_tables(more, frame, a.text)
differs, tokens = b_shown != x.a, tables.part_range(part, a.n_total)
text_picture = partial(tinted_text, frame, a.pieces, view if differs else "A", full_nats, tokens)
how = [reading.request(x, b_shown)], reading.measurements(x, b_shown)
origin = Origin("Passage", *how, reading.in_words(x, b_shown, a.n_total), f"{x.name}, {b_shown.name}")
said = [tables.finding(a, b, without(b_shown))[0]] if differs else []
says = [*filter(None, said), tables.summary(a, b if differs else None)[0]]
sheet = Sheet({"Text": text_picture}, {"Losses by token": frame}, says)
if differs:
    sheet.pictures["Difference along the text"] = bars
closing(origin, sheet)
if not text.passage and not presenting():
    st.caption(OWN_FILE)
