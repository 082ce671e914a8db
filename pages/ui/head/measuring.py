"""Stored results of a head, cheap parts measured on opening, and a button for each missing part."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st

from engine.models.session import Target
from engine.progress import in_time
from engine.studies.one_head import LONG, LOOKING, READ, TITLES, HeadRequest, portrait
from engine.studies.portrait import Portrait, joined
from pages.ui.page.runtime import first_figure_s, notes, session, store
from pages.ui.page.tables import plain
from pages.ui.page.work import PROMISES, Work, live

SLOT, NOW = "head", "head parts under way"
AHEAD = "head parts measured by itself"  # in the tab's notes: the key of the work, and the parts
ALL_HELP = "One part after the other, in the background. Finished parts are shown and stored."
PART_HELP = "In the background; finished work is stored. Costs {cost} here."
HEADS_HELP = "A pass over the questions without each head in turn: all heads of the model are ranked by it."
REDRAW_S, PLACE_PX = 2.0, 200
FIRST = ("probe", "texts")  # parts that are drawn on top
ON_THE_BENCH = ("feeding", "ideal-texts", "ideal-tasks")  # `head` and `idealize` measure them


@dataclass(frozen=True)
class Known:
    """The results on a head so far, and the work that measures the rest."""

    target: Target  # the model
    asked: HeadRequest  # the request of all parts
    found: Portrait  # the results so far
    work: Work[Portrait]  # measures all missing parts
    since_s: float  # when the page read them (time.monotonic)
    is_read: bool = False  # everything stored has been read

    def part(self, *names: str) -> Work[Portrait]:
        """Returns the work of these parts, in their own slot."""
        wanted, takes = portrait(self.target, self.asked, names), partial(self.takes_s, names)
        return Work(f"{SLOT} {' '.join(names)}", TITLES[names[0]], wanted, 2, takes=takes)

    def takes_s(self, names: Sequence[str]) -> float:
        """Returns the estimated seconds that the missing ones of these parts take here."""
        return sum(
            self.found.left[each].left.seconds_by_size(store(), self.target) for each in names if each in self.missing
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """Returns the parts that the screen shows."""
        return shown_parts(self.asked)

    @property
    def is_blank(self) -> bool:
        """Returns whether nothing that is drawn on top is known."""
        return not self.found.scores and self.found.probe is None and READ not in self.found.texts

    @property
    def missing(self) -> list[str]:
        """Returns the missing parts; none before everything stored has been read."""
        if not self.is_read:
            return []
        return [name for name in self.parts if name in self.found.left]

    def is_under_way(self, name: str) -> bool:
        """Returns whether this part is waiting for the worker or being measured."""
        return self.part(name).under_way or self.work.under_way and name in notes().get(NOW, (name,))

    def slots(self) -> list[str]:
        """Returns the slots of all possible work."""
        return [*self.work.watched(), *(self.part(name).slot for name in self.parts)]


def shown_parts(asked: HeadRequest) -> tuple[str, ...]:
    """Returns the parts that the screen shows of those that are asked for."""
    return tuple(name for name in asked.parts if name not in ON_THE_BENCH)


def look_up(target: Target, asked: HeadRequest) -> Known:
    """Returns the stored results and starts cheap work. While the worker, which may be busy with another tab, has not
    read all of them, there are those of the previous run, or those that need no questions, which are read here: work
    under way has only what it measures."""
    since_s = time.monotonic()
    work = Work(SLOT, asked.name, portrait(target, asked, shown_parts(asked)), is_uneven=True)
    stored, is_read = work.stored(), work.is_read or work.under_way
    looked = Portrait(target.shape, asked.head)
    work = replace(work, takes=lambda: known.takes_s(notes().get(NOW, known.parts)))  # of the parts it is started for
    if not work.under_way:
        notes().get(PROMISES, {}).pop(SLOT, None)  # of other parts
    known = Known(target, asked, looked, work, since_s, is_read)
    if (before := notes().get(SLOT, known)).work.key == work.key:
        looked = replace(before.found, failed={})
    if not is_read and not looked.done:
        looked = portrait(target, asked, [name for name in known.parts if name in LOOKING]).so_far(session())
    ones = [looked, *stored, *(one.found for one in map(known.part, known.parts))]
    known = notes()[SLOT] = replace(known, found=joined([known.found, *(one for one in ones if one is not None)]))
    if (ahead := cheap(known)) and not work.under_way:
        notes()[NOW] = ahead
        replace(work, of=portrait(target, asked, ahead), while_seen=True, priority=3).start()
    return known


def cheap(known: Known) -> list[str]:
    """Returns the missing parts, those that are drawn on top first, that together fit what a screen may measure by
    itself: chosen once, the rest asks. Of the demo model those on top always, whose forecast a busy machine may have
    spoiled."""
    left_s, found = first_figure_s(), list[str]()
    if not left_s:  # nothing begins unasked
        return found
    key, chosen = notes().get(AHEAD, ("", ()))
    if key == known.work.key:  # others would make it a chain of such minutes
        return [name for name in chosen if name in known.missing]
    for name in sorted(known.missing, key=lambda name: name not in FIRST):
        takes_s, is_first = known.takes_s([name]), name in FIRST and known.target.spec.is_demo
        if is_first or takes_s <= left_s:
            left_s -= 0 if is_first else takes_s
            found.append(name)
    if known.is_read:
        notes()[AHEAD] = known.work.key, tuple(found)
    return found


def draw_all(known: Known) -> None:
    """Draws the progress, or the button that measures the missing parts: at first those that do not take long."""
    works = [known.work, *map(known.part, known.parts)]

    def draw() -> None:
        if not known.is_read:
            known.work.reading_line()
        for work in works:
            work.line()
        now = known.work.found if known.work.under_way else None
        new = set[str]() if now is None else {*now.done} & {*known.missing}
        if now is not None and READ in {*now.texts} - {*known.found.texts}:
            st.rerun()  # it is measured first, before the other texts of its part
        if new & {*FIRST} or new and time.monotonic() - known.since_s > REDRAW_S:
            st.rerun()

    if len(known.missing) > 1 and not known.work.under_way:  # a single one has its own button
        names = tuple(name for name in known.missing if not known.is_blank or name not in LONG)
        notes()[NOW] = names  # if it is clicked
        wanted, takes = portrait(known.target, known.asked, names), partial(known.takes_s, names)
        every = replace(known.work, of=wanted, priority=2, takes=takes)
        label, kind = ("Measure this head", "primary") if known.is_blank else ("Measure the rest", "secondary")
        every.offer(label, "playlist_play", ALL_HELP, type=kind)
    live(known.slots(), draw, known.since_s)
    for name, line in known.found.failed.items():
        st.caption(f"{TITLES[name]}: {plain(line)}.")


def is_awaited(known: Known, name: str) -> bool:
    """Returns whether a part comes by itself: it is being read or measured."""
    is_left = name in known.missing and not known.is_under_way(name)
    return name not in (*known.found.done, *known.found.failed) and not is_left


def draw_missing(known: Known, *names: str) -> None:
    """Draws the state of the missing ones of these parts: their buttons, or that they are being measured."""
    if not known.is_blank and not {*names} <= {*known.found.done, *known.found.failed, *known.missing}:
        with st.container(height=PLACE_PX, border=False):  # about as high as what comes
            st.caption("Reading stored results …")
    missing = [name for name in names if name in known.missing]
    waiting = [name for name in missing if known.is_under_way(name)]
    if waiting:
        st.caption(f"Measuring: {', '.join(TITLES[name] for name in waiting)} …")
    if len(missing) > len(waiting) and not known.is_blank:
        st.caption("Not measured yet:")
    with st.container(horizontal=True, gap="xsmall"):
        for name in [name for name in missing if name not in waiting]:
            help = PART_HELP.format(cost=f"about {in_time(known.takes_s([name]))}")
            help += f" {HEADS_HELP}" if name == "heads-oracle" else ""
            known.part(name).offer(TITLES[name], "science", help)
