"""The Passage screen: a text, token by token, as two models read it; the sliders move its colours."""

from functools import partial

import streamlit as st

from engine.models.masks import parse_mask
from engine.texts.tokenloss import TokenLosses
from pages.ui.passage import charts as passage_charts
from pages.ui.passage import reading
from pages.ui.passage import tables as passage_frames
from pages.ui.passage.controls import choose_a, choose_b, choose_colours, largest_tables
from pages.ui.passage.jobs import Run, so_far
from pages.ui.passage.token_text import token_text
from pages.ui.prune.figure import downloads
from pages.ui.prune.tables import to_csv
from pages.ui.shared.runtime import errors_shown, require_frame, store
from pages.ui.shared.sidebar import chosen, identity, identity_slot
from pages.ui.shared.texts import choose_text
from pages.ui.shared.work import live, wait_for

require_frame("pages/passage.py")
SAME = "Nothing differs between A and B so far: prune something, or change A."
OLD = "B is being measured; these are the colours of the levels before."
WAITING = "B is being measured."
run = Run()


def both() -> tuple[TokenLosses | None, TokenLosses | None, reading.Side | None, str]:
    """(A, B, which B that is, what is to be said of it) as it is to be shown now."""
    a, b = whole_a or so_far(x, "a", x.a), whole_b or so_far(x, "b", b_side)
    if b is not None or a is None:
        return a, b, b_side, SAME if b_side == x.a else ""
    old = reading.recall(x, before, store()) if before is not None and before.spec == x.whole.spec else None
    return a, old, before if old is not None else None, WAITING if old is None else OLD


def draw_text() -> None:
    """The text as it is known now, and what is still being measured."""
    a, b, side, note = both()
    with st.container():  # a place of its own: the text behind it would be set anew if it changed its own
        run.progress()
    if a is None:
        return
    if n_parts != passage_frames.n_parts(a.n_total):
        st.rerun()  # its length has become known: the whole page has to know it
    with errors_shown():
        shown = passage_frames.extended(b if b is not None else a, a)
    mask = side.mask if side is not None and side != x.a else None
    words, help = passage_frames.summary(a, b if b is not None else a, mask)
    st.markdown(words, help=help)
    marks = passage_frames.landmarks_of(a, shown, x.landmarks)
    data = passage_frames.component_data(a, shown, passage_frames.part_range(part, a.n_total), marks)
    token_text(data, view if mask is not None else "A", full_nats, x.name, a.n_total, note)


setup = chosen()
text_at, a_at = st.columns([6, 5], gap="large", vertical_alignment="bottom")
text = choose_text("passage", text_at)
a_spec, a_typed = choose_a(a_at, setup)
levels = choose_b(setup)
view, full_nats = choose_colours()
if text is None:
    st.info("This text is no longer kept here; choose another.", icon=":material/notes:")
    st.stop()
for spec in (setup.spec, a_spec):
    identity(spec)
model, a_model = (wait_for(identity_slot(spec), "Reading the model's files", partial(identity, spec, again=True))
                  for spec in (setup.spec, a_spec))  # fmt: skip
with errors_shown():
    typed, a_mask = parse_mask(levels.typed, model.shape), parse_mask(a_typed, a_model.shape)
whole = reading.Side(setup.spec, model, parse_mask("", model.shape))
x = reading.Reading(
    text.name, text.text, text.landmarks, text.arguments, setup.bos, setup.data_dir,
    reading.Side(a_spec, a_model, a_mask), whole, levels.task, levels.ranking, levels.heads_permille,
    levels.ffns_permille, typed,
)  # fmt: skip
whole_a, orders = run.losses(x, "a", x.a), run.order(x)
b_side = x.b(orders) if orders is not None else None
whole_b = whole_a if b_side == x.a else run.losses(x, "b", b_side) if b_side is not None else None
before = st.session_state.get("passage_before")
if whole_b is not None:
    st.session_state.passage_before = b_side
a, b, b_shown, _ = both()
part, n_parts = 1, passage_frames.n_parts(a.n_total) if a is not None else 1
if a is not None and n_parts > 1:
    part = st.pagination(n_parts, key=f"passage_part_{n_parts}")
    tokens = passage_frames.part_range(part, a.n_total)
    st.caption(f"Part {part} of {n_parts}: tokens {tokens.start + 1:,} to {tokens.stop:,} of {a.n_total:,}.")
live(list(run.waiting), draw_text, run.since_s)
if a is None or b is None or b_shown is None:
    st.stop()
frame, pictures = passage_frames.token_frame(a, b), {}
# closed, so that a moved slider changes the text and nothing else: the chart alone would cost a tenth of a second
more = st.expander("Along the text, and the largest gains and losses", key="passage_more", on_change="rerun",
                   icon=":material/bar_chart:")  # fmt: skip
if more.open:
    picture = passage_charts.difference_bars(frame, full_nats, passage_frames.part_range(part, a.n_total))
    pictures["Difference along the text"] = picture
    more.altair_chart(picture, key="passage_bars", alt=passage_frames.in_words(frame))
    largest_tables(more, frame, x.text)
st.code(reading.command(x, b_shown), language="shell", wrap_lines=True)
downloads({"Losses by token": partial(to_csv, frame)}, pictures)
