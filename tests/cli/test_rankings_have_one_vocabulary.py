"""Every ranking of one task prunes the same by its name in `evaluate` and in `sweep`."""

import pytest

from engine.importance.orders import OF_ONE_TASK
from engine.importance.rules import QUICK
from tests.engine.fixtures import write_questions

N = 16


@pytest.fixture
def file(tmp_path):
    return write_questions(tmp_path / "own.jsonl", N)


@pytest.fixture
def evaluated(told, tiny, file):
    levels = ("--task", file, "--prune-heads", 50, "--prune-ffns", 50, "--seed", 3)
    return lambda ranking: told("evaluate", *tiny, *levels, "--order", ranking)


@pytest.fixture
def swept(told, tiny, file, tmp_path):
    options = ("--tasks", file, "--shots", 0, "--seed", 3, "--head-levels", "50", "--ffn-levels", "50")
    return lambda ranking: told("sweep", *tiny, *options, "--order", ranking, "--out", tmp_path / "rows.csv")


@pytest.mark.parametrize("ranking", OF_ONE_TASK)
def test_evaluate_prunes_by_every_ranking_of_one_task_and_sweep_by_the_same(ranking, evaluated, swept):
    found = evaluated(ranking)
    assert (found["heads_pruned"], found["ffns_pruned"], found["n"]) == (4, 1, N)
    if ranking != QUICK:  # which only `evaluate` takes
        row = swept("own" if ranking == "importance" else ranking)["rows"][0]
        assert (row["acc"], row["n_heads_pruned"], row["n_ffns_pruned"]) == (found["acc"], 4, 1)
    assert evaluated(ranking)["mask"] == found["mask"]
