"""`sweep --plan` and `work`: workers measure what the same sweep measures, byte for byte, killed ones or not."""

import json
import math
import os
import shutil
import time
from types import SimpleNamespace

import pytest

from cache import behind, open_store
from engine.__main__ import main
from engine.accuracy import evaluation
from engine.models.loading import LoadSpec
from engine.plans import measuring, worker
from engine.plans.cells import read_plan, written
from engine.plans.claims import Claims
from engine.plans.planning import planned
from engine.plans.status import standing
from engine.questions.requests import TaskSpec
from engine.records import decode
from engine.studies.surveys import StudySettings
from engine.studies.sweeps import Point, points, sweep
from tests.cli.conftest import refused
from tests.conftest import HANG_S
from tests.engine.fixtures import write_questions
from tests.same_results import differences

TIMES = ("rates", "tuning")  # records of how fast a machine is
WHEN = {"measured_at", "seconds"}


@pytest.fixture(scope="module", autouse=True)
def chunks_of_one_size():
    """A busy machine would take smaller ones, under keys of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "LONG_S", math.inf)
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    for seed, name in enumerate("ab"):
        write_questions(folder / f"{name}.jsonl", 20, seed)
    return folder


@pytest.fixture(scope="module")
def sweeps(place, tiny_opt):
    """The arguments of three sweeps, without where they write."""
    tasks = ",".join(str(place / f"{name}.jsonl") for name in "ab")
    base = ["sweep", "--model", str(tiny_opt), "--precision", "fp32", "--tasks", tasks, "--shots", "0", "--limit", "20"]
    base += ["--order-questions", "16"]
    return [[*base, "--head-levels", "0,30,60,100", "--ffn-levels", "0,50"],
            [*base, "--head-levels", "40,60", "--order", "aggregate"],
            [*base, "--head-levels", "30,60", "--order", "rescored"]]  # fmt: skip


@pytest.fixture(scope="module")
def local(place, sweeps):
    """(folder of the store, tables) of the sweeps without a plan."""
    for number, each in enumerate(sweeps):
        assert main([*each, "--out", str(place / f"local{number}.csv"), "--cache", str(place / "local")]) == 0
    return place / "local", [(place / f"local{number}.csv").read_bytes() for number in range(len(sweeps))]


@pytest.fixture(scope="module")
def plan(place, sweeps):
    """The file of their plan, all in one, made with a store of its own."""
    for each in sweeps:
        assert main([*each, "--plan", str(place / "plan.json"), "--cache", str(place / "planned")]) == 0
    return place / "plan.json"


def values(folder):
    """What a store holds by key, in two parts: arrays as bytes, and receipts without when and how long."""
    store = open_store(folder)
    assert not store.verify().bad_keys
    found = {}
    for key in store.keys():
        blob = store.get(key)
        record = decode(blob)
        if key.split("/")[1] in TIMES:
            continue
        if record is None:
            found[key] = blob
            continue
        arrays = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in record.arrays.items()}
        found[key] = arrays, {name: value for name, value in record.receipt.items() if name not in WHEN}
    store.close()
    return found


def before_cells(monkeypatch, **happens):
    """Has this happen before a worker measures its nth cell: `at_5=...`."""
    taken, real = [], measuring.sweep

    def sweep_later(*arguments):
        taken.append(arguments)
        happens.get(f"at_{len(taken)}", lambda: None)()
        return real(*arguments)

    monkeypatch.setattr(measuring, "sweep", sweep_later)


def test_the_plan_has_every_mask_once_and_what_it_needs(plan, place):
    found = read_plan(plan)
    scores = [cell for cell in found.cells if cell.scores]
    assert sorted((os.path.basename(cell.task.name), cell.scores) for cell in scores) == [
        ("a.jsonl", "ffns"), ("a.jsonl", "heads"), ("b.jsonl", "ffns"), ("b.jsonl", "heads")]  # fmt: skip
    by = {cell.id: cell for cell in found.cells}
    for task in ("a", "b"):
        mine = [cell for cell in found.cells if cell.task.name == str(place / f"{task}.jsonl") and cell.points]
        # of 8 heads 0, 2, 5 and 8 go, of 2 FFNs 0 and 1; by the aggregate 3 and 5; two levels scored anew are one
        assert len(mine) == 8 + 2 + 1
        [full] = [cell for cell in mine if not cell.needs]
        assert full.points == (Point(full.task, 0, 0),)
        for cell in mine:
            needs = {(by[need].task, by[need].scores) for need in cell.needs}
            others = {each.task for each in scores} if cell.points[0].by == "aggregate" else {cell.task}
            some = [(point.heads_permille % 1000, point.ffns_permille % 1000) for point in cell.points]
            wanted = {(task, "heads") for task in others if any(heads for heads, _ in some)}
            wanted |= {(task, "ffns") for task in others if any(ffns for _, ffns in some)}
            assert needs == wanted | ({(full.task, "")} if cell != full else set())
    assert all(cell.cost_s > 0 and cell.characters > 0 for cell in found.cells)
    assert {group.setting.n_questions for group in found.groups} == {20}


def test_results_are_those_of_a_sweep_without_a_plan_though_a_worker_was_stopped(
    cli, told, plan, place, sweeps, local, monkeypatch
):
    def stop():
        raise KeyboardInterrupt

    before_cells(monkeypatch, at_5=stop)
    where = ("--cache", place / "worked")
    code, out, lines = cli("work", plan, *where)
    assert code == 130 and out == "" and "resumes from there" in lines[-1]
    found = told("work", plan, "--status")
    assert found["done"] == 4 + 4 and found["workers"][0]["state"] == "ended", "four scores, four accuracies"
    last = told("work", plan, *where)
    assert last["done"] == last["cells"] and not last["failed"]
    assert last["measured"] + last["cached"] == last["cells"] - found["done"] and last["measured"] > last["cached"]
    code, out, _ = cli("work", plan, "--status")
    assert code == 0 and f"{last['cells']} of {last['cells']} cells are done" in out and "0 were measured twice" in out
    assert values(place / "worked") == values(local[0])
    assert differences(place / "worked", place / "local") == {}
    for each, table in zip(sweeps, local[1], strict=True):
        assert told(*each, "--out", place / "worked.csv", *where)["cached"]
        assert (place / "worked.csv").read_bytes() == table


WORKERS = """
import os, signal, sys, time
from functools import partial
from pathlib import Path
import torch, datasets, lm_eval.tasks
torch.set_num_threads(1)
from engine.accuracy import evaluation
evaluation.LONG_S = float("inf")
from cache import open_store
from cache.store import Store
from engine.models.session import Session
from engine.plans.cells import read_plan
from engine.plans.claims import Claims
from engine.plans.measuring import Here, measured
from engine.plans.worker import work

plan, folder, where = read_plan(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def run(killed_after):
    put, n = Store.put, 0
    def counted(self, key, blob):
        nonlocal n
        saved = put(self, key, blob)
        n += "/answers/" in key or "/importance/" in key
        if n == killed_after:
            os.kill(os.getpid(), signal.SIGKILL)
        return saved
    Store.put = counted
    store = open_store(where)
    session = Session(store)
    work(plan, Claims(folder), lambda cell, n: measured(session, plan, cell, Here(), lambda message: None))
    store.close()

def forked(killed_after):
    child = os.fork()
    if child:
        return child
    signal.alarm(int(sys.argv[4]))
    torch.set_num_threads(1)  # renews torch's threads, lost in the fork, before two threads here would at once
    try:
        run(killed_after)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

first = ended(forked(int(sys.argv[5])))
for claim in (folder / "claims").glob("*/*"):
    os.utime(claim, (0, 0))  # its lease runs out
print(first, [ended(child) for child in [forked(None), forked(None)]])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_worker_killed_in_its_cell_loses_that_cell_alone(plan, place, local, warm):
    folder, n_stored = place / "killed.claims", 17
    done = warm.run(["-c", WORKERS, plan, folder, place / "killed", HANG_S, n_stored])
    assert done.returncode == 0 and done.stdout.strip() == "-9 [0, 0]", done.stdout + done.stderr
    claims = Claims(folder)
    stands = standing(read_plan(plan), claims)
    assert stands.is_over and not stands.failed and stands.twice == 0
    turns = [file.name.split(".")[0] for file in (folder / "claims").glob("*/*") if file.suffix != ".1"]
    mine = [note.cell for note in claims.notes if note.worker == 0]
    assert len(turns) == 1 and mine and turns[0] not in mine, "the cell in hand was taken again, and no other"
    assert values(place / "killed") == values(local[0])


def test_a_worker_that_cannot_share_says_so_when_that_changes_and_goes_on(cli, plan, tmp_path, monkeypatch):
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("HEADROOM_SHARED", str(tmp_path / "shared"))
    monkeypatch.setattr(behind, "RETRY_S", 0)
    monkeypatch.setattr(behind, "CHECK_S", -1)
    there, away = tmp_path / "shared", tmp_path / "away"
    before_cells(monkeypatch, at_2=lambda: os.rename(there, away), at_6=lambda: os.rename(away, there))
    code, out, lines = cli("work", plan, "--cache", tmp_path / "store", "--claims", tmp_path / "claims", "--json")
    told = json.loads(out)
    assert code == 0 and told["done"] == told["cells"] and not told["failed"]
    said = [line for line in lines if "shared" in line]
    assert said[0].startswith("headroom: shared results cannot be ") and "the folder is gone" in said[0]
    assert "not written yet: " in said[0] and said[-1] == "headroom: results are stored and shared again"
    assert len(said) <= 4, "once for each change, not for each cell"
    monkeypatch.delenv("HEADROOM_SHARED")
    assert cli("cache", "push", tmp_path / "shared", "--cache", tmp_path / "store", "--dry-run")[1].startswith("0 res")


def test_a_worker_whose_results_nobody_else_can_see_does_not_end_well(cli, told, plan, tmp_path, monkeypatch):
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("HEADROOM_SHARED", str(tmp_path / "shared"))
    monkeypatch.setattr(behind, "RETRY_S", 0.01)
    monkeypatch.setattr(behind, "CHECK_S", -1)
    monkeypatch.setattr(worker, "SHARES_S", 0.3)
    waits = []
    before_cells(monkeypatch, at_3=lambda: os.rename(tmp_path / "shared", tmp_path / "away"))
    where = ("--cache", tmp_path / "store", "--claims", tmp_path / "claims")
    code, out, lines = cli("work", plan, *where)
    assert code == 1 and out == "" and any("results of this worker are only in its own store" in each for each in lines)

    def back(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            os.rename(tmp_path / "away", tmp_path / "shared")
        time.sleep(seconds)

    monkeypatch.setattr(worker, "SHARES_S", HANG_S)
    monkeypatch.setattr(worker, "time", SimpleNamespace(**vars(time) | {"sleep": back}))
    shutil.rmtree(tmp_path / "claims")
    (tmp_path / "store").rename(tmp_path / "gone")
    last = told("work", plan, *where)
    assert len(waits) >= 2 and last["done"] == last["cells"]
    monkeypatch.delenv("HEADROOM_SHARED")


def test_bad_plans_get_one_line(cli, place, plan, sweeps, tmp_path):
    refused(cli("work", tmp_path / "no.json"), 1, "cannot read the plan", "sweep --plan")
    (tmp_path / "rows.json").write_text("[1]")
    refused(cli("work", tmp_path / "rows.json", "--status"), 1, "rows.json is not a plan of this version")
    refused(cli(*sweeps[0], "--plan", tmp_path / "rows.json"), 1, "rows.json is not a plan of this version")
    refused(cli(*sweeps[0], "--plan", tmp_path / "gone" / "plan.json"), 1, "does not exist")
    refused(cli(*sweeps[0], "--plan", plan, "--out", "x.csv"), 2, "not allowed with")
    refused(cli(*sweeps[0]), 2, "--out", "--plan")
    refused(cli("work", plan, "--lease", "0"), 2, "--lease is 0")
    refused(cli("work", plan, "--model", tmp_path / "none", "--claims", tmp_path / "c"), 1, "none")
    assert not (tmp_path / "c").exists(), "it is said before anything is claimed"


def test_another_model_or_missing_rows_end_a_worker_and_leave_its_cell_to_others(cli, plan, folder_of, tmp_path):
    claims = ("--claims", tmp_path / "claims")
    other = cli("work", plan, *claims, "--model", folder_of("llama"))
    assert other[0] == 1 and "another model here than where the plan was written" in other[2][-1]
    moved = written(read_plan(plan)).replace(b"a.jsonl", b"gone.jsonl").replace(b"b.jsonl", b"gone.jsonl")
    (tmp_path / "moved.json").write_bytes(moved)
    assert cli("work", tmp_path / "moved.json", *claims)[0] == 1
    stands = standing(read_plan(plan), Claims(tmp_path / "claims"))
    assert (stands.done, dict(stands.failed), stands.in_hand) == (0, {}, 0)


def test_what_cannot_be_planned_is_said_and_the_rest_is_planned(told, sweeps, tmp_path):
    words = [*(each.replace("a.jsonl", "gone.jsonl") for each in sweeps[0]), "--plan", tmp_path / "plan.json"]
    first = told(*words)
    assert len(first["not_planned"]) == 1 and first["cells"] == first["new"] == 2 + 8
    assert told(*words)["new"] == 0


@pytest.mark.parametrize("by", ["random", "weight", "prefix", "induction-protected", "taylor", "task", "others"])
def test_workers_that_measure_cells_alone_leave_nothing_to_the_sweep(by, session, place, tiny_opt):
    """Whatever ranks: what a cell needs is among its needs, so that no worker measures a score beside it."""
    setting = StudySettings(LoadSpec(str(tiny_opt), "fp32"), None, None, 4, 4)
    tasks = [TaskSpec(str(place / f"{name}.jsonl")) for name in "ab"]
    wanted, pool = points(tasks, [0, 500], [0, 500], by, tasks[0].name if by == "task" else ""), [t.name for t in tasks]
    found = planned(session, setting, wanted, pool)
    assert not found.failed
    for cell in found.plan.cells:
        before = {*session.store.keys()}
        outcome = measuring.measured(session, found.plan, cell, measuring.Here(), lambda message: None)
        others = ("requests", "self-check", *TIMES)
        made = [key for key in {*session.store.keys()} - before if key.split("/")[1] not in others]
        assert not outcome.failed
        if cell.points:
            assert len(made) <= 1 and all("/answers/" in key for key in made), "one chunk of answers under one mask"
    known = sweep(session.target(setting.spec, setting.bos), setting, wanted, pool).look(session)
    assert len(known.value.rows) == len(set(wanted)) and known.is_complete
