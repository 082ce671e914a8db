"""Every ranking works by its name: in `evaluate` where it takes one task, in `sweep` where it takes several."""

import pytest

from engine.importance.rankings_of import OF_MANY_TASKS, OF_ONE_TASK
from tests.engine.fixtures import write_questions

N = 16


@pytest.fixture
def files(tmp_path):
    return [write_questions(tmp_path / f"{name}.jsonl", N, seed) for seed, name in enumerate("ab")]


@pytest.fixture
def evaluated(told, tiny, files):
    levels = ("--task", files[0], "--prune-heads", 50, "--prune-ffns", 50, "--seed", 3)
    return lambda ranking: told("evaluate", *tiny, *levels, "--order", ranking)


@pytest.fixture
def swept(told, tiny, files, tmp_path):
    def run(ranking, n_tasks):
        options = (
            "--tasks",
            ",".join(map(str, files[:n_tasks])),
            "--shots",
            0,
            "--seed",
            3,
            "--out",
            tmp_path / "rows.csv",
        )
        levels = (
            "--head-levels",
            "50",
            "--ffn-levels",
            "50",
            "--order",
            ranking,
            "--source-task",
            files[1] if ranking == "task" else "",
        )
        return told("sweep", *tiny, *options, *levels)

    return run


@pytest.mark.parametrize("ranking", OF_ONE_TASK)
def test_evaluate_prunes_by_every_ranking_of_one_task_and_sweep_by_the_same(ranking, evaluated, swept):
    found = evaluated(ranking)
    assert (found["heads_pruned"], found["ffns_pruned"], found["n"]) == (4, 1, N)
    row = swept("own" if ranking == "importance" else ranking, 1)["rows"][0]
    assert (row["acc"], row["n_heads_pruned"], row["n_ffns_pruned"]) == (found["acc"], 4, 1)
    assert evaluated(ranking)["mask"] == found["mask"]


@pytest.mark.parametrize("ranking", [ranking for ranking in OF_MANY_TASKS if ranking not in OF_ONE_TASK])
def test_sweep_prunes_by_every_ranking_of_many_tasks(ranking, swept):
    found = swept(ranking, 2)
    assert found["not_measured"] == {} and len(found["rows"]) == 2
    for row in found["rows"]:
        assert (row["by"], row["n_heads_pruned"], row["n_ffns_pruned"], row["n"]) == (ranking, 4, 1, N)
    assert swept(ranking, 2)["cached"]
