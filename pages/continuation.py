"""The Continue screen: the user's prompt, and its continuation by the full and by the pruned model."""

import time
from functools import partial

import streamlit as st

from engine.importance.rules import Evidence
from engine.texts.passages import as_chat, checked
from pages.ui.continuation import sections, setting
from pages.ui.controls import carried
from pages.ui.controls.controls import choose_chat
from pages.ui.controls.pruning import choose_pruning
from pages.ui.controls.sidebar import wait_for_model
from pages.ui.controls.study import chosen
from pages.ui.downloads.footer import closing
from pages.ui.figures.sheet import Sheet
from pages.ui.page.marks import mark
from pages.ui.page.runtime import errors_shown, require_frame, session
from pages.ui.page.work import Action, Work, live

require_frame("pages/continuation.py")
STREAM_S = 0.4  # between two redraws of the text generated so far
setup, finding_at = chosen(), st.container(key="finding-title")
mark("finding", "reserved", finding_at)  # an empty container has no height, and the prompt would move
with errors_shown():
    prompt, how, menu = sections.choose()
row = st.container(key="continue_pruning")
slider_at, badge_at = row.columns([7, 5], gap="large", vertical_alignment="center")
levels = choose_pruning("continue", setup.data_dir, slider_at, menu)
target = wait_for_model(setup)
is_chat = choose_chat("continue", menu, target)
with errors_shown():
    prompt, pruning = checked(prompt, "the prompt"), levels.pruning(target.shape)
    chat = as_chat(target, prompt) if is_chat else None
x = setting.ContinuationControls(target, setup.data_dir, prompt, pruning, how, chat)
since_s = time.monotonic()
work = Work("continuation", "Continuation", Action(x.key, partial(setting.measure, x, session())), while_seen=True)
work.value()
mask = pruning.known_mask(target.shape, Evidence()) or (work.found.mask if work.found is not None else None)
carried.hand_on("continue", target.shape, mask, badge_at.container(key="continue_badge"))


def so_far() -> setting.Said:
    """Returns the results so far."""
    return work.found or setting.Said()


def draw() -> None:
    """Draws both models, again as they generate."""
    work.line()
    sections.draw(so_far(), x.prompt, sheet)


sheet = Sheet()
with finding_at:
    live([work.slot], lambda: sections.draw_finding(so_far()), since_s, every_s=STREAM_S)
live([work.slot], draw, since_s, every_s=STREAM_S)
found = so_far()
if found.next is not None:
    sheet.tables["Next token"] = frame = sections.next_frame(found.next, (found.full, found.pruned))
    says = sections.finding(frame, found.mask, (found.full, found.pruned))
    sheet.says = [says, *sections.said_in_words(found, x.prompt)]
sheet.tables["What was said"] = sections.said_frame(found)
closing(setting.origin(x, found.mask), sheet)
