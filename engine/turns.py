"""Whose turn it is when jobs of several tabs wait for the measuring thread.

Of each tab the most urgent job counts: the one of lowest priority, then the one submitted first. Between tabs the lower
rank goes first, then the tab whose turn it is. A tab whose user asks for something new is first in turn, and a tab that
is served goes to the back. The rank of a job is its priority, except that after a whole turn it is at least ASKED: two
tabs with long jobs then take turns, whatever these are, and background work still comes last.
"""

import itertools
import time
from collections.abc import Collection, Hashable, Iterable
from typing import Protocol, TypeVar

ASKED = 2  # the priority of work started by a button; background work has a higher one
TURN_S = 1.0  # the least that a turn measures, after the first turn, which is one piece
OVERHEAD = 2.0  # a turn measures at least so many times as long as it has loaded and read


class InTurn(Protocol):
    """A job as far as its turn depends on it."""

    priority: int
    number: int  # in order of submission
    had_turn: bool  # has used up a whole turn
    goes_first: bool  # at the user's request: its priority counts whatever turns it had

    @property
    def tabs(self) -> Collection[Hashable]: ...


J = TypeVar("J", bound=InTurn)


def rank(job: InTurn) -> int:
    """Returns the urgency of a job next to those of other tabs; lower goes first."""
    return max(job.priority, ASKED) if job.had_turn and not job.goes_first else job.priority


def precedes(one: InTurn, other: InTurn) -> bool:
    """Returns whether a job is more urgent than another, which then gives way at once."""
    if set(one.tabs) & set(other.tabs):
        return one.priority < other.priority
    return rank(one) < rank(other)


class Turns:
    """The order in which tabs take turns. Its user guards it with a lock."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._place: dict[Hashable, int] = {}  # the lowest is first in turn
        self._asked_s: dict[Hashable, float] = {}

    def ask(self, tab: Hashable) -> None:
        """Puts a tab first in turn: its user asks for something new."""
        self._place[tab], self._asked_s[tab] = -next(self._numbers), time.monotonic()

    def serve(self, tabs: Iterable[Hashable]) -> None:
        """Puts tabs last in turn: a job of theirs runs now."""
        self._place |= dict.fromkeys(tabs, next(self._numbers))

    def asked_since(self, tabs: Iterable[Hashable], at_s: float) -> bool:
        """Returns whether one of the tabs has asked for something new since then."""
        return any(self._asked_s.get(tab, 0.0) > at_s for tab in tabs)

    def by_last_asked(self, tabs: Iterable[Hashable]) -> list[Hashable]:
        """Returns the tabs, the one that asked last first."""
        return sorted(tabs, key=lambda tab: -self._asked_s.get(tab, 0.0))

    def forget(self, tab: Hashable) -> None:
        """Forgets a tab that is closed."""
        self._place.pop(tab, None)
        self._asked_s.pop(tab, None)

    def first(self, jobs: Iterable[J]) -> J | None:
        """Returns the job whose turn it is; None if there are none."""
        of_tab: dict[Hashable, J] = {}
        for job in jobs:
            for tab in job.tabs:
                known = of_tab.get(tab)
                if known is None or (job.priority, job.number) < (known.priority, known.number):
                    of_tab[tab] = job
        order = [(rank(job), self._place.get(tab, 0), job.number, tab) for tab, job in of_tab.items()]
        return of_tab[min(order, key=lambda each: each[:3])[3]] if order else None


class Turn:
    """One turn of a job that runs: how long it has measured, and whether that is enough."""

    def __init__(self, is_first: bool, began_s: float) -> None:
        self.began_s, self._is_first = began_s, is_first
        self._last_s, self._overhead_s, self._is_loading = began_s, 0.0, True  # what is prepared counts as loaded
        self.n_pieces = 0

    def step(self, at_s: float, is_cached: bool, is_loading: bool) -> None:
        """Notes a step: what was read, and the step after a load, are not measuring."""
        if is_cached or self._is_loading:
            self._overhead_s += at_s - self._last_s
        self._last_s, self._is_loading = at_s, is_loading

    def count_piece(self) -> None:
        """Notes that a piece is finished and stored."""
        self.n_pieces += 1

    def ends_s(self) -> float | None:
        """Returns when the turn is over; None while that is not known."""
        if self._is_first:
            return self._last_s if self.n_pieces else None
        return self._whole_s()

    def is_over(self, at_s: float) -> bool:
        """Returns whether another tab is next, now that a piece has been measured."""
        ends_s = self.ends_s()
        return ends_s is not None and at_s >= ends_s

    def is_whole(self, at_s: float) -> bool:
        """Returns whether it has lasted as long as any turn but the first."""
        return at_s >= self._whole_s()

    def _whole_s(self) -> float:
        return self.began_s + self._overhead_s + max(TURN_S, OVERHEAD * self._overhead_s)
