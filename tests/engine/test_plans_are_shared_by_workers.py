"""Any number of workers measure a plan: each cell once, those of killed ones too, and none before what it needs.

What is measured is a stand-in that only writes down its cell: whose it is, and how, is claims and order alone.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import HeadroomError
from engine.models.loading import LoadSpec
from engine.plans import claims as claiming
from engine.plans.cells import Cell, Group, Plan, read_plan, written
from engine.plans.claims import Claims
from engine.plans.status import standing
from engine.plans.worker import Outcome, Taking, in_turn, place_of, work
from engine.questions.requests import TaskSpec
from engine.studies.surveys import StudySettings
from engine.studies.sweeps import Point
from tests.conftest import HANG_S, REPOSITORY
from tests.engine.fixtures import refused_by


def plan_of(n, n_scores=0, models=("demo",), cost_s=1.0):
    """A plan of n cells, the first of which are scores that every other one needs one of."""
    groups = tuple(Group(StudySettings(LoadSpec(model, "fp32")), ("piqa",)) for model in models)
    cells = []
    for number in range(n):
        task = TaskSpec(f"task{number % 7}")
        points = (Point(task, number % 1000, 0),)
        what = {"scores": "heads"} if number < n_scores else {"points": points}
        needs = (f"{number % n_scores:016x}",) if number >= n_scores and number % 2 and n_scores else ()
        cells.append(Cell(f"{number:016x}", number * len(models) // n, task, needs=needs, cost_s=cost_s, **what))
    return Plan(groups, tuple(cells))


def drive(plan, folder, begun, **options):
    return work(plan, Claims(folder, **options), lambda cell, n: begun.append(cell.id) or Outcome())


def joined(folder):
    """Claims of a worker that has joined."""
    claims = Claims(folder)
    claims.join()
    return claims


def expire(folder, worker=None):
    """Lets the leases of unfinished claims run out, of one worker or of all."""
    for file in (folder / "claims").glob("*/*"):
        if worker is None or file.read_bytes() == str(worker).encode():
            os.utime(file, (0, 0))


WORKER = """
import os, sys
from engine.plans.cells import read_plan
from engine.plans.claims import Claims
from engine.plans.worker import Outcome, work
plan, folder, log = read_plan(sys.argv[1]), sys.argv[2], os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def measure(cell, n_settled):
    os.write(log, f"{os.getpid()} begins {cell.id}\\n".encode())
    import time
    time.sleep(0.01)
    os.write(log, f"{os.getpid()} ends {cell.id}\\n".encode())
    return Outcome()
work(plan, Claims(folder), measure)
"""


@pytest.fixture
def start(tmp_path):
    """A function that starts a worker, and the log that all of them write into."""
    running = []

    def start():
        command = [sys.executable, "-c", WORKER, tmp_path / "plan.json", tmp_path / "plan.claims", tmp_path / "log"]
        running.append(subprocess.Popen(command, cwd=REPOSITORY))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait(HANG_S)


def lines(file):
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def test_four_processes_measure_each_cell_once_and_what_is_needed_first(start, tmp_path):
    plan = plan_of(300, n_scores=12)
    (tmp_path / "plan.json").write_bytes(written(plan))
    assert [process.wait(HANG_S) for process in [start() for _ in range(4)]] == [0] * 4
    found = lines(tmp_path / "log")
    begun, ended = ([id for _, what, id in found if what == word] for word in ("begins", "ends"))
    assert sorted(begun) == sorted(ended) == [cell.id for cell in plan.cells]
    for cell in plan.cells:
        at = next(at for at, (_, what, id) in enumerate(found) if (what, id) == ("begins", cell.id))
        assert all([str, "ends", need][1:] in [line[1:] for line in found[:at]] for need in cell.needs)
    stands = standing(plan, Claims(tmp_path / "plan.claims"))
    assert stands.is_over and (stands.twice, stands.in_hand, stands.lost) == (0, 0, 0)
    assert sum(worker.cells for worker in stands.workers) == 300 and len(stands.workers) == 4


def test_kill_9_at_any_time_loses_at_most_the_cell_in_hand(start, tmp_path):
    plan, folder, log = plan_of(200, n_scores=8), tmp_path / "plan.claims", tmp_path / "log"
    (tmp_path / "plan.json").write_bytes(written(plan))
    workers, killed = [start() for _ in range(3)], []
    for n_lines in (40, 120, 200):  # of the log, by which one is killed
        victim = workers.pop(0)
        while victim.poll() is None:
            so_far = lines(log)
            if len(so_far) >= n_lines and str(victim.pid) in {who for who, _, _ in so_far}:
                break
            time.sleep(0.005)
        victim.send_signal(signal.SIGKILL)
        victim.wait(HANG_S)
        killed.append(victim.pid)
        found = Claims(folder)
        found.refresh()
        [number] = [number for number, told in found.workers.items() if told.pid == victim.pid]
        expire(folder, number)
        workers.append(start())
    assert [worker.wait(HANG_S) for worker in workers] == [0] * len(workers)
    found = lines(log)
    begun = Counter(id for _, what, id in found if what == "begins")
    assert {id for _, what, id in found if what == "ends"} == {cell.id for cell in plan.cells} == {*begun}
    again = [id for id, n in begun.items() if n > 1]
    last = {pid: [id for who, what, id in found if (who, what) == (str(pid), "begins")][-1:] for pid in killed}
    assert set(again) <= {id for ids in last.values() for id in ids}, "only what a killed one had in hand"
    assert standing(plan, Claims(folder)).is_over


def test_a_stale_claim_is_taken_over_by_one_and_a_live_one_by_none(tmp_path):
    workers = [joined(tmp_path) for _ in range(9)]
    assert workers[0].take("0000000000000001") and not any(claims.take("0000000000000001") for claims in workers)
    assert not any(claims.take_over("0000000000000001") for claims in workers[1:])
    for _ in range(2):  # whoever took it over may be lost too
        expire(tmp_path)
        barrier = threading.Barrier(8)

        def attempt(claims, barrier=barrier):
            barrier.wait()
            return claims.take_over("0000000000000001")

        with ThreadPoolExecutor(8) as threads:
            assert sorted(threads.map(attempt, workers[1:])) == [False] * 7 + [True]


def test_a_claim_is_renewed_while_its_cell_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(claiming, "RENEWALS", 1000)
    claims, plan = Claims(tmp_path), plan_of(1)

    def measure(cell, n_settled):
        expire(tmp_path)
        [file] = (tmp_path / "claims").glob("*/*")
        end = time.monotonic() + HANG_S
        while not file.stat().st_mtime and time.monotonic() < end:
            time.sleep(0.01)
        assert file.stat().st_mtime
        return Outcome()

    assert work(plan, claims, measure).measured == 1


def test_a_clock_that_is_wrong_takes_no_cell_from_others(tmp_path, monkeypatch):
    one, real = joined(tmp_path), time.time
    assert one.take("0000000000000001")
    monkeypatch.setattr(claiming.time, "time", lambda: real() + 100_000)
    other = joined(tmp_path)
    assert not other.take_over("0000000000000001")
    expire(tmp_path)
    assert other.take_over("0000000000000001")


def test_whoever_only_looks_on_goes_by_the_same_clock(tmp_path, monkeypatch):
    one, plan, real = joined(tmp_path), plan_of(2), time.time
    assert one.take("0000000000000001")
    for wrong_s in (100_000, -100_000):
        monkeypatch.setattr(claiming.time, "time", lambda wrong_s=wrong_s: real() + wrong_s)
        stands = standing(plan, Claims(tmp_path))
        assert (stands.in_hand, stands.lost) == (1, 0)
        assert stands.workers[0].state == "at work" and stands.workers[0].silent_s < 100
    expire(tmp_path)
    assert standing(plan, Claims(tmp_path)).lost == 1
    assert not list(tmp_path.glob("nobody/*")) and standing(plan, Claims(tmp_path / "nobody")).done == 0
    assert not (tmp_path / "nobody").exists()


def test_what_failed_by_a_clock_that_is_ahead_is_tried_again_too(tmp_path, monkeypatch):
    plan, real, begun = plan_of(2), time.time, []
    monkeypatch.setattr(claiming.time, "time", lambda: real() + 90)
    work(plan, Claims(tmp_path), lambda cell, n: Outcome(failed="an empty answer"))
    monkeypatch.undo()
    drive(plan, tmp_path, begun)
    assert begun == []
    drive(plan, tmp_path, begun, retry=True)
    assert sorted(begun) == ["0000000000000000", "0000000000000001"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_network_that_stumbles_ends_no_worker(tmp_path, monkeypatch, number):
    plan, begun, waits = plan_of(30, n_scores=2), [], []
    other, claims = joined(tmp_path), joined(tmp_path)
    assert other.take("0000000000000003")
    real = {"scandir": os.scandir, "stat": Path.stat, "open": open}

    def now_and_then(does):
        calls = []

        def stumbling(*arguments, **options):
            calls.append(arguments)
            if len(calls) % 2 and (does != "open" or arguments[1:] == ("rb",)):
                raise OSError(number, os.strerror(number))
            return real[does](*arguments, **options)

        return stumbling

    monkeypatch.setattr(claiming.os, "scandir", now_and_then("scandir"))
    monkeypatch.setattr(claiming, "open", now_and_then("open"), raising=False)
    monkeypatch.setattr(claiming.Path, "stat", now_and_then("stat"))

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 5:
            other.settle("0000000000000003", 1.0)

    taking = Taking(in_turn(plan, 0.0), claims, wait)
    while (cell := taking.next()) is not None:
        begun.append(cell.id)
        claims.settle(cell.id, 1.0)
    assert sorted([*begun, "0000000000000003"]) == [cell.id for cell in plan.cells] and len(waits) >= 5


def test_a_half_written_line_is_read_once_it_is_whole(tmp_path):
    one, other = joined(tmp_path), Claims(tmp_path)
    assert one.take("0000000000000001")
    one.settle("0000000000000001", 1.0)
    log = tmp_path / "workers" / "0.jsonl"
    line = log.read_bytes()
    log.write_bytes(line[:-10])
    other.refresh()
    assert not other.settled
    log.write_bytes(line + b"no JSON\n\xff\n[]\n{}\n")
    for _ in range(2):
        other.refresh()
        assert set(other.settled) == {"0000000000000001"} and len(other.notes) == 1


def test_whoever_is_told_to_end_leaves_its_cell_to_others_at_once(tmp_path):
    plan, begun = plan_of(3), []

    def interrupted(cell, n_settled):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(plan, Claims(tmp_path), interrupted)
    drive(plan, tmp_path, begun)
    assert sorted(begun) == [cell.id for cell in plan.cells]


def test_a_cell_that_ends_two_workers_is_set_aside_and_one_that_a_machine_cannot_measure_is_not(tmp_path):
    plan = plan_of(3)

    def measure(cell, n_settled):
        if cell.id == "0000000000000001":
            raise error
        return Outcome()

    for error in [HeadroomError("no such model here")] * 3 + [MemoryError("too much")] * 2:
        with pytest.raises(type(error)):
            work(plan, Claims(tmp_path), measure)
    assert work(plan, Claims(tmp_path), measure).measured == 0
    stands = standing(plan, Claims(tmp_path))
    assert stands.done == 2 and list(stands.failed.values()) == ["MemoryError: too much"] and stands.is_over
    begun = []
    drive(plan, tmp_path, begun, retry=True)
    assert begun == ["0000000000000001"] and not standing(plan, Claims(tmp_path)).failed


def test_what_cannot_be_measured_is_told_with_the_reason_and_tried_again_when_asked(tmp_path):
    plan = plan_of(4, n_scores=1)
    tally = work(plan, Claims(tmp_path), lambda cell, n: Outcome(failed="" if cell.points else "an empty answer"))
    assert (tally.failed, tally.measured) == (1, 3), "what needs it is tried all the same"
    assert standing(plan, Claims(tmp_path)).failed == {str(plan.cells[0]): "an empty answer"}
    begun = []
    drive(plan, tmp_path, begun)
    assert begun == []
    drive(plan, tmp_path, begun, retry=True)
    assert begun == ["0000000000000000"] and not standing(plan, Claims(tmp_path)).failed


def test_a_worker_waits_for_scores_that_another_has_in_hand(tmp_path):
    plan, waits = plan_of(2, n_scores=1), []
    one, other = joined(tmp_path), joined(tmp_path)
    assert one.take("0000000000000000")

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 4:
            one.settle("0000000000000000", 1.0)

    taking = Taking(in_turn(plan, 0.5), other, wait)
    assert taking.next() == plan.cells[1] and len(waits) == 4
    assert waits[3] > waits[0], "it asks less and less often"


def test_workers_begin_far_from_each_other():
    places = [place_of(number) for number in range(8)]
    assert places == [0, 1 / 2, 1 / 4, 3 / 4, 1 / 8, 5 / 8, 3 / 8, 7 / 8]
    plan = plan_of(800)
    first = sorted(int(in_turn(plan, place)[1][0].id, 16) for place in places)
    assert min(b - a for a, b in zip(first, first[1:], strict=False)) == 100


@pytest.mark.parametrize("place", [0, 0.3, 0.5, 0.99])
def test_a_model_that_is_loaded_serves_all_its_cells_and_what_others_need_comes_first(place):
    plan = plan_of(300, n_scores=9, models=("demo", "other", "third"))
    order = [cell for cells in in_turn(plan, place) for cell in cells]
    assert sorted(cell.id for cell in order) == [cell.id for cell in plan.cells]
    groups = [cell.group for cell in order]
    assert sum(a != b for a, b in zip(groups, groups[1:], strict=False)) == 2 and groups[0] == int(place * 3)
    needed = {need for cell in plan.cells for need in cell.needs}
    for group in range(3):
        mine = [cell.id in needed for cell in order if cell.group == group]
        assert mine == sorted(mine, reverse=True)


def test_a_plan_is_read_as_it_was_written_and_two_are_one(tmp_path):
    one, other = plan_of(20, n_scores=3), plan_of(30, n_scores=3, models=("demo", "other"))
    both = one + other
    assert [cell.id for cell in both.cells] == [cell.id for cell in other.cells] and len(both.groups) == 2
    file = tmp_path / "plan.json"
    file.write_bytes(written(both))
    assert read_plan(file) == both and read_plan(file) + both == both
    for cell in both.cells[20:]:
        assert both.groups[cell.group].setting.spec.model == ("demo" if int(cell.id, 16) < 15 else "other")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"format": "headroom plan 9"}', b"\xff", b"null",
                written(plan_of(2)).replace(b'"group": 0', b'"group": 7')],
)  # fmt: skip
def test_what_is_no_plan_is_said_in_one_line(content, tmp_path):
    (tmp_path / "plan.json").write_bytes(content)
    refused_by(HeadroomError, "not a plan of this version", lambda: read_plan(tmp_path / "plan.json"))


def test_how_all_stand(tmp_path):
    plan = plan_of(10, n_scores=2, cost_s=3.0)
    claims = [joined(tmp_path) for _ in range(3)]
    for each, cell in zip(claims, plan.cells, strict=False):
        assert each.take(cell.id)
        each.settle(cell.id, 6.0, cached=cell.id == "0000000000000001")
    for each, cell in zip(claims, plan.cells[3:6], strict=True):
        assert each.take(cell.id)
    log = tmp_path / "workers" / "2.jsonl"
    os.utime(log, (0, 0))
    expire(tmp_path, 2)
    claims[1].let_go()
    claims[1].leave()
    stands = standing(plan, Claims(tmp_path))
    assert (stands.cells, stands.scores, stands.done, stands.scores_done, stands.cached) == (10, 2, 3, 2, 1)
    assert (stands.in_hand, stands.lost, stands.twice, stands.is_over) == (1, 2, 0, False)
    assert [worker.state for worker in stands.workers] == ["at work", "ended", "lost"]
    assert stands.workers[0].in_hand == str(plan.cells[3]) and stands.workers[0].seconds == 6.0
    assert stands.left_s == 7 * 3.0 * 2, "seven are left, each takes twice what was estimated, one is at work"
    assert json.dumps(replace(stands, workers=()).failed) == "{}"


def test_a_folder_that_cannot_be_written_is_said_in_one_line(tmp_path):
    (tmp_path / "plan.claims").write_text("a file")
    refused_by(HeadroomError, "--claims", lambda: drive(plan_of(1), tmp_path / "plan.claims", []))
