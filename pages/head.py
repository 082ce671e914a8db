"""The Head screen: what one attention head does, and the losses without it."""

from typing import Any

import streamlit as st

from engine.requests import ReportHead
from engine.studies.one_head import HeadRequest, head_named, portrait
from pages.ui.controls.many_tasks import setting_of
from pages.ui.controls.sidebar import wait_for_model
from pages.ui.controls.study import chosen
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_model, tasks_in_words
from pages.ui.figures.sheet import Sheet
from pages.ui.head import by_weights, in_texts, losses, ranks, tables
from pages.ui.head.asking import await_first_head, choose, choose_of
from pages.ui.head.measuring import draw_all, look_up, shown_parts
from pages.ui.head.portrait import draw_portrait
from pages.ui.page.address import one_among, put_right
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import errors_shown, require_frame

require_frame("pages/head.py")
N_QUESTIONS = 100
# by tab: what draws it from what is known
SECTIONS = {
    "Among all heads": ranks.section,
    "Without it": losses.section,
    "In a text": in_texts.section,
    "Tokens it promotes": by_weights.section,
}

setup = chosen()
headline_at = st.container()  # unlike `empty`, keeps its line while the page runs again
target = wait_for_model(setup)
with errors_shown():
    choice, list_at, work_at = choose(target, setup.data_dir)
    head = head_named(choice.head, target.shape)
await_first_head(target)
asked = HeadRequest(head, setting_of(setup, N_QUESTIONS), choice.tasks)
known = look_up(target, asked)
headline = tables.headline(known.found)
headline_at.header(f"{asked.name} · {headline}" if headline else asked.name)
choose_of(tables.of_interest(known.found), asked.name, list_at)
if not known.is_blank:  # else the button is in the place of what it measures
    with work_at:
        draw_all(known)
sheet = Sheet(says=[f"{headline}."] if headline else [])
sheet.add("Scores", tables.scores_table(known.found))
draw_portrait(known, sheet)
if not presenting():  # a slide shows one screen, and these sections are below it
    put_right("head_part", "Part", one_among(SECTIONS))
    tabs = st.tabs(list(SECTIONS), key="head_part", on_change="rerun", bind="query-params")
    for section, at in zip(SECTIONS.values(), tabs, strict=True):
        with at:
            section(known, sheet)

more = dict[str, Any]()
if choice.tasks:
    names = ",".join(task.name for task in choice.tasks)
    more |= {"tasks": names, "shots": choice.tasks[0].shots, "task_data": setup.data_dir}
request = ReportHead(head=asked.name, **of_model(target), **more)
of = [tasks_in_words(choice.tasks), f"{N_QUESTIONS} questions"] if choice.tasks else ["no task"]
measured = {"Head": portrait(target, asked, shown_parts(asked))}
closing(Origin("Head", [request], measured, about(target, asked.name, *of)), sheet)
