"""A section of a screen: a request, from "not measured" to its finding, figures and tables. `show` draws the sections
of a screen, and what is made of them: its slides, its downloads, its commands."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import streamlit as st

from engine.measurement import Measurement
from engine.models.session import Target
from engine.requests import Request
from engine.views.view import Part, View
from pages.ui.controls.controls import folded
from pages.ui.downloads.actions import draw_actions
from pages.ui.downloads.origin import Origin
from pages.ui.figures.drawing import draw_chart, draw_table
from pages.ui.figures.empty import empty_state
from pages.ui.figures.sheet import Sheet
from pages.ui.page.runtime import show_error
from pages.ui.page.screens import screen_of
from pages.ui.page.tables import plain
from pages.ui.page.work import Work, live

MEASURE_HELP = "Runs in the background. Finished parts are kept."


@dataclass(frozen=True)
class Section:
    """A measurement on a screen.

    `title`: its name, in progress lines too
    `request`: what is measured: it gives the command, the program, the notebook and the view as well
    `target`: the model
    `shows`: what one will see, until it is measured
    `starts`: when it is measured: at once, at once if it is short, or at a click
    `is_folded`: it is in an expander, whose state is in the address
    `of`: what is measured in place of the whole request, such as a part of it
    `draw`: draws the value in place of the view, and adds it to the sheet
    """

    title: str
    request: Request
    target: Target
    shows: str
    starts: Literal["at once", "if short", "on request"] = "if short"
    is_folded: bool = False
    of: Measurement[Any] | None = None
    draw: Callable[[Any, Sheet], None] | None = None

    @property
    def key(self) -> str:
        """Its name in keys of elements and in the address."""
        return "section_" + "_".join(self.title.lower().split())

    @property
    def measured(self) -> Measurement[Any]:
        """What is measured."""
        return self.of or self.request.whole(self.target)

    @property
    def work(self) -> Work[Any]:
        """The work that measures it."""
        return Work(self.title, self.title, self.measured, is_uneven=True)


def show(file: str, sections: Sequence[Section], about: str) -> None:
    """Draws the sections of the screen in this file of `pages`, and below them what is made of those that are open.
    `about`: the model and what is measured, for its downloads."""
    since_s, sheet = time.monotonic(), Sheet()
    opened = [section for section in sections if draw_section(section, sheet, since_s)]
    measured = {section.title: section.measured for section in opened}
    draw_actions(Origin(screen_of(file).title, [section.request for section in opened], measured, about), sheet)


def draw_section(section: Section, sheet: Sheet, since_s: float) -> bool:
    """Draws a section; returns whether it is open."""
    draw = partial(_draw, section, sheet, since_s)
    return bool(folded(section.title, section.key, draw, in_address=True)) if section.is_folded else draw()


def _draw(section: Section, sheet: Sheet, since_s: float) -> bool:
    """Draws a section in the state in which it is; returns True."""
    work = section.work
    results = work.results_so_far()
    if results:
        with st.container(key=f"result_{section.key}"):
            if section.draw is not None:
                section.draw(results[-1], sheet)
            else:
                draw_view(results[-1].view, section.key, sheet)
    elif work.fault and not work.under_way:
        show_error(work.fault)
    else:
        if work.is_read and section.starts == "at once":
            work.start()
        elif work.is_read and section.starts == "if short":
            work.start_ahead(by_size=True)
        with empty_state("", section.shows, work.is_read, key=f"empty {section.key}"), st.container():
            live(work.watched(), partial(_draw_work, work), since_s)
    return True


def _draw_work(work: Work[Any]) -> None:
    """Draws the progress, or the button that begins it."""
    if not work.is_read:
        work.reading_line()
    elif not work.line():
        work.offer("Measure", "play_arrow", MEASURE_HELP, least_s=0.0, by_size=True, type="primary")


def draw_view(view: View, key: str, sheet: Sheet) -> None:
    """Draws a view, and adds it to the sheet: its finding, each line of parts, and its notes. `key`: begins those of
    its elements."""
    if view.finding:
        sheet.add_view(view)
        st.markdown(f"#### {view.finding}" if len(sheet.says) == 1 else view.finding)
    for line in _lines(view):
        for part, at in zip(line, st.columns([part.width for part in line], gap="large"), strict=True):
            with at:
                draw_part(part, f"{key} {part.title}", view.finding, sheet)
    for note in view.notes:
        sheet.says.append(plain(note))
        st.text(note)


def _lines(view: View) -> list[list[Part]]:
    """The parts with rows, as many in each line as have room."""
    lines: list[list[Part]] = []
    for part in [part for part in view.parts if part.rows]:
        if not lines or sum(each.width for each in lines[-1]) + part.width > 1:
            lines.append([])
        lines[-1].append(part)
    return lines


def draw_part(part: Part, key: str, finding: str, sheet: Sheet, has_table: bool = True) -> None:
    """Draws a part's chart with its table folded under it unless that is left out, or its table alone, and adds both to
    the sheet."""
    picture = sheet.add_part(part)
    st.markdown(f"**{plain(part.title)}**")
    if picture is None:
        draw_table_of(part)
        return
    draw_chart(picture, f"chart {key}", f"{part.title}. {part.caption or finding}")
    if part.caption:
        st.caption(part.caption)
    if has_table:
        folded("Table", f"table {key}", partial(draw_table_of, part))


def draw_table_of(part: Part) -> None:
    """Draws the table of a part."""
    frame, columns = part.frame(), part.shown
    if part.ranked_by:
        frame = frame.sort_values(part.ranked_by, ascending=False, kind="stable")
    titles: dict[str, Any] = {
        name: st.column_config.Column(column.title, help=column.help or None) for name, column in columns.items()
    }
    draw_table(frame, titles, part.title, formats={name: column.text for name, column in columns.items()})
