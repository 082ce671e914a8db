"""The Passage screen: a text, token by token, as two models read it; the sliders move its colours."""

import math
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import streamlit as st

from engine.jobs import Progress
from engine.masks import parse_mask
from engine.tokenloss import TokenLosses
from pages.ui import passage_charts, passage_frames, reading
from pages.ui.figures import downloads
from pages.ui.frame import errors_shown, jobs, models, require_frame, store
from pages.ui.frames import to_csv
from pages.ui.live import live, progress_line, wait_for
from pages.ui.passage_controls import choose_a, choose_b, choose_colours, largest_tables
from pages.ui.sidebar import chosen, identity, identity_slot
from pages.ui.texts import choose_text
from pages.ui.token_text import token_text

require_frame("pages/passage.py")
PATIENCE_S = 1.0  # after so long the progress is shown; until then the text stays as it was
SLICE_S = 0.05
SAME = "Nothing differs between A and B so far: prune something, or change A."
OLD = "B is being measured; these are the colours of the levels before."
WAITING = "B is being measured."
since_s = time.monotonic()
waiting: dict[str, partial] = {}  # slot: what starts its job again


def started(slot: str, key: str, run: partial[Iterator[Progress]]) -> Any:
    """The value of the slot's job once it is done, if that is soon; else None, and the job goes on."""
    jobs().submit(slot, key, run)
    while True:
        job = jobs().join(slot, SLICE_S)
        if job is not None and job.key == key and job.state == "done":
            return job.value
        if job is None or job.key != key or job.finished or time.monotonic() > since_s + PATIENCE_S:
            waiting[slot] = partial(jobs().submit, slot, key, run, again=True)
            return None
        st.session_state.get("framed")  # here Streamlit ends this run when a slider has moved on meanwhile


def losses(slot: str, title: str, side: reading.Side) -> TokenLosses | None:
    """The losses of the whole text, stored or measured at once; else None, and they are being measured."""
    found = reading.recall(x, side, store())
    if found is None:
        run = partial(reading.measure, x, side, title, models(), store())
        return started(slot, side.key(x.text, x.bos), run)
    jobs().drop(slot)
    return found


def so_far(slot: str, side: reading.Side | None) -> TokenLosses | None:
    """What the slot's job has measured of this side."""
    job = jobs().snapshot(slot)
    return job.value if job is not None and side is not None and job.key == side.key(x.text, x.bos) else None


def both() -> tuple[TokenLosses | None, TokenLosses | None, reading.Side | None, str]:
    """(A, B, which B that is, what is to be said of it) as it is to be shown now."""
    a, b = whole_a or so_far("passage A", x.a), whole_b or so_far("passage B", b_side)
    if b is not None or a is None:
        return a, b, b_side, SAME if b_side == x.a else ""
    old = reading.recall(x, before, store()) if before is not None and before.spec == x.whole.spec else None
    return a, old, before if old is not None else None, WAITING if old is None else OLD


def draw_text() -> None:
    """The text as it is known now, and what is still being measured."""
    a, b, side, note = both()
    with st.container():  # a place of its own: the text behind it would be set anew if it changed its own
        for slot, again in waiting.items():
            if (job := jobs().snapshot(slot)) is not None:
                progress_line(slot, job, "Ranking" if slot == "passage order" else "Losses", again)
    if a is None:
        return
    if n_parts != passage_frames.n_parts(a.n_total):
        st.rerun()  # its length has become known: the whole page has to know it
    with errors_shown():
        shown = passage_frames.extended(b if b is not None else a, a)
    mean_a, mean_b, n = passage_frames.means(a, b if b is not None else a)
    mask = side.mask if side is not None and side != x.a else None
    help = f"Of all tokens that have a loss. Perplexity, the mean's exponential: A {math.exp(mean_a):,.1f}"
    help += f", B {math.exp(mean_b):,.1f}." if mask is not None else "."
    st.markdown(passage_frames.summary(mean_a, mean_b, n, mask), help=help)
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
whole_a = losses("passage A", "A", x.a)
orders = x.known_order or started("passage order", x.order_key, partial(reading.measure_order, x, models(), store()))
b_side = x.b(orders) if orders is not None else None
whole_b = whole_a if b_side == x.a else losses("passage B", "B", b_side) if b_side is not None else None
before = st.session_state.get("passage_before")
if whole_b is not None:
    st.session_state.passage_before = b_side
a, b, b_shown, _ = both()
part, n_parts = 1, passage_frames.n_parts(a.n_total) if a is not None else 1
if a is not None and n_parts > 1:
    part = st.pagination(n_parts, key=f"passage_part_{n_parts}")
    tokens = passage_frames.part_range(part, a.n_total)
    st.caption(f"Part {part} of {n_parts}: tokens {tokens.start + 1:,} to {tokens.stop:,} of {a.n_total:,}.")
live(list(waiting), draw_text, since_s)
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
