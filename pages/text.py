"""The Text screen: what a pruned model loses of a text, token by token, and what the heads look at."""

from functools import partial
from typing import Any

import streamlit as st

from engine.heads.induction import induction
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.requests import MeasureAttention, Request
from engine.requests.texts import attention_file
from engine.texts.passages import as_chat
from engine.texts.tokenloss import have_same_tokens
from pages.ui.controls.controls import one_of
from pages.ui.controls.selection import compared
from pages.ui.controls.sidebar import wait_for_model
from pages.ui.controls.study import set_study, study
from pages.ui.controls.study_bar import draw_level, draw_pruned
from pages.ui.controls.texts import OWN_FILE, PAPER, PAPER_SAYS, choose_text, paste_paper
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, of_model, ranking_part
from pages.ui.figures.sheet import Sheet
from pages.ui.figures.token_text import ATTENTION
from pages.ui.page.marks import mark
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import end_run, errors_shown, require_frame, session
from pages.ui.page.tables import plain
from pages.ui.page.work import live
from pages.ui.text import sections, tables
from pages.ui.text.looks import choose_heads, known_looks, looks_of, names_of
from pages.ui.text.reading import FULL, PRUNED, Side, TextRun, TextState, read_so_far
from pages.ui.text.view import FULL_NATS, SHADE, SHADE_HELP, TextView, asked, choose_part

require_frame("pages/text.py")
OTHER_TOKENS = "{} has another tokenizer: no token pairs to compare. Below is {} alone."
PRUNE_HELP = "On all screens: of all heads the 10% that match prefixes best."
INDUCTION_HEADS = {"axis": "heads", "heads": 10, "order": "induction-first"}
ALONE = "text alone"  # in the session: text and models whose tokens were found to differ
DRAWN = "text drawn"  # in the session: the text drawn last
BEFORE = "text pruned"  # in the session: the pruned model drawn last

asks, run = study(), TextRun()
setup = asks.setup
with st.container(key="text_level"):
    pruned_at = draw_level(asks).container(key="text_badge")
text_at, paper_at, shade_at, head_at = st.columns([9, 5.6, 4.4, 4], gap="small", vertical_alignment="bottom")
text = choose_text(text_at)
paste_paper(paper_at)
shade = one_of(shade_at, "Shade by", SHADE, "text_shade", SHADE_HELP)
awaits_at = st.empty()
if text is None:
    st.info("This text was deleted; choose another.", icon=":material/notes:")
    end_run()
if st.session_state.get(DRAWN) not in (None, (text.name, text.text)):  # dims what still shows the text before
    awaits_at.container(key="text_awaits").caption(f"Measuring “{plain(text.name)}” …")
other = compared(setup.spec)
target = wait_for_model(setup)
full_target = target if other is None else wait_for_model(setup, other)
known = induction(target).stored(session())
with errors_shown():
    pruning, is_chat = asks.pruning(target), asks.is_chat
    for each in (target, full_target) if is_chat else ():
        as_chat(each, text.text)  # so that an error is shown here
    heads = choose_heads(head_at, target, known)
whole, full = Side(target, Mask.full(target.shape)), Side(full_target, Mask.full(full_target.shape))
pair = text.text, is_chat, other, setup.spec
if st.session_state.get(ALONE) == pair:
    full = whole
    st.info(OTHER_TOKENS.format(plain(full_target.spec.in_words), plain(setup.spec.in_words)), icon=":material/info:")
    mark("comparison", "other tokens")
of_text = (text.name, text.text, () if is_chat else text.landmarks, text.named, is_chat)
x = TextState(*of_text, setup.data_dir, full, whole, pruning)
_, orders = run.losses(x, FULL, x.full), run.order(x)
side = x.pruned(orders) if orders is not None else None
draw_pruned(pruned_at, target.shape, None if side is None else side.mask)
if side is not None and side.mask.is_full:
    more = {"on_click": set_study, "kwargs": INDUCTION_HEADS, "help": PRUNE_HELP}
    pruned_at.button("Prune the induction heads", icon=":material/content_cut:", **more)
before = st.session_state.get(BEFORE)
if side is not None and side != x.full and run.losses(x, PRUNED, side) is not None:
    st.session_state[BEFORE] = side
read = read_so_far(x, side, before)
if read.full is not None and read.pruned is not None and not have_same_tokens(read.full, read.pruned):
    st.session_state[ALONE] = pair
    st.rerun()
part, n_parts = choose_part(0 if read.full is None else read.full.n_total)
wanted = looks_of(x, heads, read)
looks = None if wanted is None else known_looks(run, wanted, read, shade == ATTENTION)
view = TextView(x, run, side, before, known, heads, looks, shade, part, n_parts, asked())
live([*run.waiting], view.draw, run.since_s)
st.session_state[DRAWN] = text.name, text.text
awaits_at.empty()
if text.name == PAPER:
    st.caption(PAPER_SAYS)
if read.full is None or side is None or not read.is_whole(side):
    end_run()
frame, token = tables.token_frame(read.full, read.pruned), int(asked()[0] or 0) - 1
shown = sections.Read(x, side, read.full, read.pruned, token if 0 <= token < len(read.full) else None)
sheet = Sheet({"Text": partial(tables.tinted_text, frame, read.full, FULL_NATS)}, {"Losses by token": frame})
sheet.says.append(tables.finding(read.full, read.pruned, view.without(side))[0])
requests: list[Request] = [x.request(side)]
measured: dict[str, Measurement[Any]] = {"Full model": x.losses(x.full), "Pruned model": x.losses(side)}
measured |= ranking_part(target, pruning, setup.data_dir)
if looks is not None and wanted is not None:
    requests.append(
        MeasureAttention(**of_model(target), **x.named, heads=",".join(names_of(heads)), out="attention.csv")
    )
    measured["Attention"], sheet.tables["Attention"] = wanted, partial(attention_file, ".csv", *looks)
if not presenting():
    for section in sections.draw_below(shown, frame, sheet, run.since_s):
        requests.append(section.request)
        measured[section.title] = section.measured
origin = Origin("Text", requests, measured, x.in_words(side, read.full.n_total), f"{x.name}, {side.name}")
closing(origin, sheet)
if not text.passage and not presenting():
    st.caption(OWN_FILE)
