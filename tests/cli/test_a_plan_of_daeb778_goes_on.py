"""A plan that daeb778 wrote, began and left: today's workers finish the rest of it, and its ids are today's.

`tests/daeb778.py` says how it was made.
"""

import json
import os
from collections import Counter

import pytest

from cache import open_store
from cache.shared import travels
from engine.models import loading
from tests.daeb778 import unpack

BASE = "sweep --model ./tiny --precision fp32 --tasks boats.jsonl,roads.jsonl --limit 20 --ranking-questions 16"
SWEEPS = (
    "--shots 0 --heads 0,30,60,100 --ffns 0,50",
    *(
        f"--shots 0 --heads 30,60 --by {by}"
        for by in ("random", "aggregate", "others", "rescored", "induction-first", "wanda", "taylor")
    ),
    "--shots 1 --heads 50 --ffns 0,50",
)
DONE, CELLS = 22, 59
# in the store when daeb778 itself had finished the plan
RECORDS = {"answers": 78, "requests": 8, "importance": 6, "induction": 4, "activity": 2, "magnitudes": 1}


@pytest.fixture
def old(tmp_path, keys_of_then, monkeypatch):
    """The folder of what daeb778 wrote, as the current one; its workers were stopped and killed long ago."""
    folder = unpack(tmp_path / "old")
    monkeypatch.chdir(folder)
    for file in (folder / "plan.claims").rglob("*"):
        os.utime(file, (0, 0))
    return folder


def cells(file="plan.json"):
    """What a plan says is measured, by the id of its cell: all but costs."""
    with open(file, encoding="utf-8") as opened:
        plan = json.load(opened)
    costs = {"characters", "cost_s"}
    return {cell["id"]: {name: value for name, value in cell.items() if name not in costs} for cell in plan["cells"]}


def log(worker):
    """The cells that a worker has settled, each as often as it says so."""
    with open(f"plan.claims/workers/{worker}.jsonl", encoding="utf-8") as lines:
        return Counter(said["cell"] for said in map(json.loads, lines) if "cell" in said)


def records(folder):
    """How many results of each kind a store has; how to compute on a machine is none."""
    store = open_store(folder)
    kinds = Counter(key.split("/")[1] for key in store.keys() if travels(key))
    store.close()
    return {kind: n for kind, n in kinds.items() if kind != "tuning"}


def sweep(cli, line, *more):
    """What one of SWEEPS says."""
    code, out, lines = cli(*BASE.split(), *line.split(), *more, "--cache", "store", "--json")
    assert code == 0, lines
    return json.loads(out)


@pytest.mark.slow("measures 37 cells, and reads the tables of nine sweeps")
def test_a_worker_finishes_the_rest_and_sweeps_find_all_of_it(old, cli, monkeypatch):
    finished = log(0) | log(1)
    stands = json.loads(cli("work", "plan.json", "--status", "--json")[1])
    assert (stands["cells"], stands["done"], stands["lost"], stands["in_hand"]) == (CELLS, DONE, 2, 0)
    assert [(each["cells"], each["state"]) for each in stands["workers"]] == [(14, "ended"), (8, "lost")]

    code, out, lines = cli("work", "plan.json", "--cache", "store", "--json")
    told = json.loads(out)
    assert code == 0 and not told["not_measured"], lines
    assert told["done"] == told["cells"] == CELLS and told["measured"] + told["cached"] == CELLS - DONE
    assert log(2) == Counter({*cells()} - {*finished}), "each of the rest once, and nothing else"
    assert records("store") == RECORDS | {"self-check": 1}, "something that was stored was measured again"

    monkeypatch.setattr(loading, "load", lambda *more: pytest.fail("something was not measured"))
    for line in SWEEPS:
        assert sweep(cli, line, "--out", "table.csv")["cached"], line


def test_todays_plan_of_the_same_sweeps_has_the_same_cells(old, cli):
    before = cells()
    for line in SWEEPS:
        sweep(cli, line, "--plan", "today.json")
    assert cells("today.json") == before
    assert sweep(cli, SWEEPS[0], "--plan", "plan.json")["new"] == 0 and cells() == before
