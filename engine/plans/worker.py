"""Takes cells until none is left, and shares what it measured; any number of workers may run at the same time."""

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cache import Store
from engine.errors import HeadroomError, one_line
from engine.plans.cells import Cell, Plan
from engine.plans.claims import Claims, renewing

LOOKS_S, SHARE = 5.0, 100  # how often others' logs are read at most, and for each second of reading so many of work
WAITS_S = 0.05, 5.0  # for what others have in hand: at first, and at most
LOST = 20  # of what others have in hand, looked at in a round: where there is more there are many who look
SHARES_S = 300.0  # that a worker waits at its end for a shared place to come back


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: all of it was stored already (`cached`), or why it cannot be measured (`failed`)."""

    cached: bool = False
    failed: str = ""


@dataclass(frozen=True)
class Tally:
    """What one worker has done: cells that it measured, found stored, and could not measure."""

    measured: int = 0
    cached: int = 0
    failed: int = 0


def work(plan: Plan, claims: Claims, measure: Callable[[Cell, int], Outcome]) -> Tally:
    """Measures every cell that no other worker takes. `measure` gets the cell and the number of finished cells.

    An error of `measure` ends this worker and releases its cell. If it is not a HeadroomError, the cell may be the
    cause: after it has ended two workers, the cell counts as failed.
    """
    tally = Tally()
    place = place_of(claims.join())
    taking = Taking(in_turn(plan, place), claims)
    with renewing(claims):
        try:
            while (cell := taking.next()) is not None:
                began_s = time.perf_counter()
                found = measure(cell, len(claims.settled))
                claims.settle(cell.id, time.perf_counter() - began_s, found.cached, found.failed)
                tally = Tally(
                    tally.measured + (not found.cached and not found.failed),
                    tally.cached + found.cached,
                    tally.failed + bool(found.failed),
                )
        except (KeyboardInterrupt, HeadroomError):
            claims.let_go()
            raise
        except BaseException as error:
            claims.let_go(ended_by=one_line(f"{type(error).__name__}: {error}"))
            raise
        finally:
            claims.leave()
    return tally


class Taking:
    """The cells that are left, as one worker takes them: in its order, what has to be measured first before what needs
    it, and at last what others had in hand and have not renewed."""

    def __init__(
        self, stretches: Sequence[Sequence[Cell]], claims: Claims, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._claims, self._wait = claims, wait
        self._known = {cell.id for cells in stretches for cell in cells}
        self._free = deque(map(deque, stretches))
        self._later: list[Cell] = []  # that need unfinished cells
        self._others: list[Cell] = []  # that others have in hand
        self._look_s = 0.0  # when to look again, on time.monotonic

    def next(self) -> Cell | None:
        """A cell that this worker has claimed now; None once all are settled."""
        waits_s, most_s = WAITS_S
        while True:
            if (cell := self._first_free()) is not None:
                return cell
            self._look()
            if self._free:
                continue
            if not self._others:
                if not self._later:
                    return None
                self._known.clear()  # cells that need each other: the plan was edited by hand
                continue
            for cell in random.sample(self._others, min(LOST, len(self._others))):
                if self._claims.take_over(cell.id):
                    self._others.remove(cell)
                    return cell
            self._wait(random.uniform(0.5, 1.0) * waits_s)  # not all at once
            waits_s = min(most_s, 2 * waits_s)

    def _first_free(self) -> Cell | None:
        """Claims and returns the first unclaimed cell that is ready.

        If another worker has claimed a cell here, this one continues elsewhere in the plan. Others' logs are read then,
        and when a cell is not ready yet; a worker that is alone in its part of the plan only claims cells.
        """
        while self._free:
            cells = self._free[0]
            if not cells:
                self._free.popleft()
                continue
            cell = cells.popleft()
            if cell.id in self._claims.settled:
                continue
            if not self._is_ready(cell):
                self._later.append(cell)
            elif self._claims.take(cell.id):
                return cell
            else:
                self._others.append(cell)
                cells.rotate(random.randrange(1 + len(cells)))
            if time.monotonic() >= self._look_s:
                self._look()
        return None

    def _look(self) -> None:
        """Reads what others have settled; what waited for that is free."""
        began_s = time.monotonic()
        self._claims.refresh()
        self._others = [cell for cell in self._others if cell.id not in self._claims.settled]
        later = self._later
        self._later = [cell for cell in later if not self._is_ready(cell)]
        if len(self._later) < len(later):
            self._free.appendleft(deque(cell for cell in later if self._is_ready(cell)))  # it stood in front
        now_s = time.monotonic()
        self._look_s = now_s + max(LOOKS_S, SHARE * (now_s - began_s))

    def _is_ready(self, cell: Cell) -> bool:
        return all(need in self._claims.settled or need not in self._known for need in cell.needs)


def in_turn(plan: Plan, place: float) -> list[list[Cell]]:
    """All cells in the order of a worker that begins at `place` (0 to 1) of them and goes round: the model of the first
    before other models, and of each what others need before the rest, a list each, both from that place."""
    if not plan.cells:
        return []
    needed = {need for cell in plan.cells for need in cell.needs}
    by_model: dict[int, list[Cell]] = {}
    for cell in plan.cells:
        by_model.setdefault(plan.models[cell.group], []).append(cell)
    names, at = list(by_model), place * len(plan.cells)
    first = next(n for n, name in enumerate(names) if at < sum(len(by_model[each]) for each in names[: n + 1]))
    within = (at - sum(len(by_model[name]) for name in names[:first])) / len(by_model[names[first]])
    stretches: list[list[Cell]] = []
    for name in [*names[first:], *names[:first]]:
        for tier in (True, False):
            cells = [cell for cell in by_model[name] if (cell.id in needed) is tier]
            begin = int(within * len(cells))
            stretches.append([*cells[begin:], *cells[:begin]])
    return stretches


def place_of(number: int) -> float:
    """Where worker `number` begins: 0, 1/2, 1/4, 3/4, 1/8, ...: far from all before it, however many come (van der
    Corput's sequence)."""
    place, digit = 0.0, 0.5
    while number:
        place += digit * (number & 1)
        number, digit = number >> 1, digit / 2
    return place


def share(store: Store) -> None:
    """Waits until all results are shared, since this machine's disk may vanish with the job. HeadroomError if they
    cannot be."""
    end_s, pause_s = time.monotonic() + SHARES_S, 0.1
    while n := store.share():
        if time.monotonic() >= end_s:
            why = store.trouble or "writing them takes long"
            raise HeadroomError(f"{n:,} results of this worker are only in its own store: {why}; `cache push` "
                                "on this machine copies them")  # fmt: skip
        time.sleep(pause_s)
        pause_s = min(5.0, 2 * pause_s)


def trouble_teller(store: Store, say: Callable[[str], None]) -> Callable[[], None]:
    """Returns a function that reports once that results cannot be shared or stored, and again when that changes. The
    worker continues."""
    said: str | None = None

    def tell() -> None:
        nonlocal said
        if (trouble := store.trouble) != said:
            said = trouble
            say(store.notice or "results are stored and shared again")

    return tell
