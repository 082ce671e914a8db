"""How all workers of a plan stand, read from the folder of its claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.errors import one_line
from engine.plans.cells import Plan, cost_s
from engine.plans.claims import Claims, Note


@dataclass(frozen=True)
class Worker:
    """One worker: where it runs, the cells that it settled, the seconds it took for those that it measured, and what it
    has in hand, "" where that is nothing. `state` is at work, waiting, ended, or lost: it has said nothing for a lease
    (`silent_s`: for how long)."""

    number: int
    host: str
    pid: int
    cells: int
    seconds: float
    state: str
    in_hand: str
    silent_s: float


@dataclass(frozen=True)
class Standing:
    """Cells of a plan: all, those of importance among them, done, found stored, failed with the reason, in hand of a
    worker that is alive, left by one that is not. `twice` counts cells that more than one worker has measured; `left_s`
    is None where no worker is alive or none has measured yet."""

    cells: int
    scores: int
    done: int
    scores_done: int
    cached: int
    failed: Mapping[str, str]
    in_hand: int
    lost: int
    twice: int
    workers: tuple[Worker, ...]
    left_s: float | None

    @property
    def is_over(self) -> bool:
        return self.done + len(self.failed) == self.cells


def standing(plan: Plan, claims: Claims) -> Standing:
    """How the plan stands now."""
    claims.refresh()
    by_id = {cell.id: cell for cell in plan.cells}
    settled = {id: note for id, note in claims.settled.items() if id in by_id}
    hands = [hand for hand in claims.hands() if hand.cell in by_id]
    done = {id for id, note in settled.items() if not note.failed}
    measured: dict[str, set[int]] = {}
    for note in claims.notes:
        if not note.cached and not note.failed:
            measured.setdefault(note.cell, set()).add(note.worker)
    notes: dict[int, list[Note]] = {}
    for note in claims.notes:
        notes.setdefault(note.worker, []).append(note)
    holds = {hand.worker: str(by_id[hand.cell]) for hand in hands}
    workers = tuple(
        _worker(number, claims, notes.get(number, ()), holds.get(number, "")) for number in sorted(claims.workers)
    )
    return Standing(
        len(by_id),
        sum(bool(cell.scores) for cell in plan.cells),
        len(done),
        sum(bool(by_id[id].scores) for id in done),
        sum(settled[id].cached for id in done),
        {str(by_id[id]): one_line(note.failed) for id, note in settled.items() if note.failed},
        sum(hand.is_live for hand in hands),
        sum(not hand.is_live for hand in hands),
        sum(len(by) > 1 for by in measured.values()),
        workers,
        left_s(plan, settled, sum(worker.state == "at work" for worker in workers)),
    )


def _worker(number: int, claims: Claims, notes: Sequence[Note], in_hand: str) -> Worker:
    began, silent_s = claims.workers[number], claims.silent_s(number)
    state = "at work" if in_hand else "waiting"
    if number in claims.left:
        state = "ended"
    elif silent_s > claims.lease_s:
        state = "lost"
    seconds = sum(note.seconds for note in notes if not note.cached)
    return Worker(number, one_line(began.host), began.pid, len(notes), seconds, state, in_hand, silent_s)


def left_s(plan: Plan, settled: Mapping[str, Note], n_at_work: int) -> float | None:
    """Seconds until all is done by so many workers, at the pace of what was measured; None where that says nothing."""
    timed = [cell for cell in plan.cells if cell.id in settled and not settled[cell.id].cached]
    left = [cell for cell in plan.cells if cell.id not in settled]
    estimated = cost_s(timed)
    if not left:
        return 0.0
    if not estimated or not n_at_work:
        return None
    return cost_s(left) * sum(settled[cell.id].seconds for cell in timed) / estimated / n_at_work
