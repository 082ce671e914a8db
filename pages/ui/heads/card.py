"""The card of the chosen head: what it is, where it looks, what it costs on each task."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import streamlit as st

from engine.errors import UsageError
from engine.heads.attention import Head
from engine.heads.in_text import HeadInText, head_in_texts
from engine.heads.induction import best_heads
from engine.models.masks import Edits, Mask, parse_mask
from engine.questions.rendering import TaskSpec
from engine.requests import ReportHead
from engine.shapes import ModelShape
from engine.statistics import Paired
from engine.studies.ablations import costs_by_task, known_costs
from engine.studies.one_head import READ, built_in, head_named
from engine.studies.surveys import Survey, survey
from engine.views.heads import costs_part, describe_head, looks_part, raises_in_words
from engine.views.view import Part
from pages.ui.controls.coloring import COST, ESTIMATE
from pages.ui.controls.first_views import N_FIRST
from pages.ui.controls.many_tasks import with_others
from pages.ui.controls.study import set_study
from pages.ui.controls.texts import open_at_head
from pages.ui.downloads.origin import of_model
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.sheet import Sheet
from pages.ui.heads.map import KEY
from pages.ui.heads.scores import ScoreReader
from pages.ui.page.address import current_value
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.page.runtime import show_error
from pages.ui.page.widget_writes import hold
from pages.ui.page.work import Work, live
from pages.ui.sections.section import Section, draw_section

HEAD_HELP = "Such as `L1H0`: layer 1, head 0, both counted from 0. A click on the map chooses one, too."
LOOKS = "Where it looks"
SHOWS = "You will see where it looks in a text, and which tokens it raises there."
COSTS_HELP = "The train questions of these tasks, with and without this head, in the background."
TEXT_HELP = "Where it looks in any text, token by token."


@dataclass(frozen=True)
class HeadCard:
    """The chosen head, and what is known of it.

    `reader`: of the scores of the study's task
    `name`: of the head
    `typed`: the components that the study names
    `below`: what its levels prune
    """

    reader: ScoreReader
    name: str
    typed: Edits
    below: Mask

    @property
    def head(self) -> Head:
        return head_named(self.name, self.reader.target.shape)

    @cached_property
    def tasks(self) -> list[TaskSpec]:
        """The study's task, and two others."""
        return with_others(self.reader.task, self.reader.study, N_FIRST)

    @cached_property
    def removed(self) -> Survey:
        """The accuracies lost without each head, of the tasks where they are stored."""
        of, (what, _) = self.reader, self.reader.whats(COST)
        work = Work("heads oracles", "", survey(of.target, of.setting, self.tasks, what))
        return max(work.results_so_far(), key=lambda found: len(found.scores), default=Survey())

    @property
    def missing(self) -> list[TaskSpec]:
        return [task for task in self.tasks if task not in self.removed.scores]

    @property
    def costs_work(self) -> Work[dict[TaskSpec, Paired]]:
        """Measures what this head costs on the other tasks."""
        of = costs_by_task(self.reader.target, self.reader.setting, self.missing, self.head)
        return Work("head costs", f"Without {self.name}", of, 2, while_seen=True)

    def costs(self) -> tuple[Mapping[TaskSpec, Paired], Mapping[TaskSpec, bool]]:
        """Returns what the head costs on each task so far, and whether that is clear."""
        apart = max(self.costs_work.results_so_far(), key=len, default={}) if self.missing else {}
        return known_costs(self.head, self.tasks, self.removed.scores, apart)

    @property
    def request(self) -> ReportHead:
        tasks, of = ",".join(task.name for task in self.tasks), self.reader
        asked: dict[str, Any] = {"tasks": tasks, "shots": of.task.shots, "task_data": of.study.data_dir}
        return ReportHead(head=self.name, **of_model(of.target), **asked, limit=RANKING_QUESTIONS)


def choose_head(shape: ModelShape, first: str) -> str:
    """Draws the field of the head's name, `first` by default; returns the name, "" without one."""
    hold(KEY)
    typed = current_value(KEY).strip()
    found = _named(shape, typed) or first
    st.text_input(
        "Head", key=KEY, bind="query-params", placeholder=first, help=HEAD_HELP, label_visibility="collapsed", width=110
    )
    if typed and not _named(shape, typed):
        ends = f"{shape.head_names[0]} to {shape.head_names[-1]}"
        show_error(f"“{typed[:40]}” is not a head of this model: type one from {ends}.")
    return found


def first_head(of: ScoreReader) -> str:
    """Returns the head that the screen opens with: the costliest, or the highest by the estimate, or that of the best
    prefix matching; "" before any of these is known."""
    known = (found.scores for by in (COST, ESTIMATE) if (found := of.found(by)[0]) is not None)
    matching = () if of.induction_scores is None else (of.induction_scores.mean["prefix_matching"],)
    return next((next(best_heads(scores, 1))[0] for scores in (*known, *matching)), "")


def draw_card(card: HeadCard, sheet: Sheet, since_s: float) -> list[Section]:
    """Draws the card; returns its section."""
    costs, clear = card.costs()
    words = describe_head(card.name, card.head, card.reader.induction_scores, card.reader.task, costs, clear)
    st.markdown(words)
    sheet.says.append(words)
    _draw_buttons(card)
    looks = head_in_texts(card.reader.target, {READ: built_in()[READ]}, card.head).map(lambda found: found.get(READ))
    section = Section(LOOKS, card.request, card.reader.target, SHOWS, "if short", of=looks, draw=_draw_looks)
    draw_section(section, sheet, since_s)
    if costs:
        _draw_chart(costs_part(costs, clear), "head costs", words, sheet)
    if card.missing:
        live(card.costs_work.watched(), partial(_draw_costs_work, card, len(costs)), since_s)
    return [section]


def _draw_buttons(card: HeadCard) -> None:
    layer, number = card.head
    is_kept = card.typed.on(card.below).heads[layer][number]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        label, icon = ("Prune it", "content_cut") if is_kept else ("Restore it", "undo")
        st.button(
            label,
            on_click=_prune,
            args=(card, is_kept),
            icon=f":material/{icon}:",
            help="On all screens.",
            key="heads_prune",
        )
        if st.button(
            "Show in Text", icon=":material/visibility:", help=TEXT_HELP, key="heads_in_text", type="tertiary"
        ):
            open_at_head(card.name)


def _prune(card: HeadCard, prunes: bool) -> None:
    """Prunes the head, or restores it, on top of the levels."""
    named = parse_mask(card.name, card.reader.target.shape)
    set_study(mask=card.typed.with_named(named, prunes, card.below).text())


def _draw_looks(seen: HeadInText, sheet: Sheet) -> None:
    words, part = looks_part(seen, READ)
    raises = raises_in_words(seen)
    st.markdown(f"{words} {raises}")
    sheet.says += [words, raises]
    _draw_chart(part, "head looks", words, sheet)


def _draw_chart(part: Part, key: str, words: str, sheet: Sheet) -> None:
    """Draws a chart without its table, which is in the downloads."""
    st.markdown(f"**{part.title}**")
    picture = sheet.add_part(part)
    assert picture is not None
    draw_chart(picture, key, words)


def _draw_costs_work(card: HeadCard, n_known: int) -> None:
    work = card.costs_work
    if work.job_value and len(work.job_value) > n_known:
        st.rerun()
    if n_known == len(card.tasks) or work.line():
        return
    if not work.is_read:
        work.reading_line()
    elif not work.start_ahead(by_size=True):
        n = len(card.tasks) - n_known
        label = f"Measure it on {n} more task{'s' * (n > 1)}" if n_known else f"Measure its cost on {n} tasks"
        work.offer(label, "science", COSTS_HELP, 0.0, by_size=True)


def _named(shape: ModelShape, text: str) -> str | None:
    """Returns the name of the head that a text names; None if it names none, or several."""
    try:
        layer, head = head_named(text, shape)
    except UsageError:
        return None
    return f"L{layer}H{head}"
