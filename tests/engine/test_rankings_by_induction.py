"""The two rankings that know induction heads: they go first, or they go last."""

import json

import numpy as np
import pytest

from engine.importance.importance import Scores
from engine.importance.rankings_of import NEEDS, Evidence, Ranking, orders_from
from engine.shapes import ModelShape

SHAPE = ModelShape(2, 4, 4, 32, 8, 64, 512, 256)
HEADS = Scores("heads", 10, np.array([[8.0, 1, 2, 3], [7, 6, 5, 4]]))
PREFIX = np.array([[0.0, 0.9, 0.1, 0.2], [0.05, 0.31, 0.0, 0.5]])


def heads_by(name):
    return orders_from(SHAPE, Ranking(name), Evidence(heads=HEADS, prefix_matching=PREFIX)).heads.tolist()


def test_induction_heads_go_first_or_last():
    assert heads_by("importance") == [1, 2, 3, 7, 6, 5, 4, 0]
    assert heads_by("induction-first")[:3] == [1, 7, 5]
    assert heads_by("induction-protected") == [2, 3, 6, 4, 0, 1, 7, 5]


@pytest.mark.parametrize("name", list(NEEDS))
def test_every_ranking_is_an_order_of_all_heads_and_says_what_it_lacks(name):
    assert sorted(heads_by(name)) == list(range(8))
    assert Evidence().missing(name, False, False) == []
    lacking = Evidence().missing(name, True, True)
    assert lacking == list(NEEDS[name]) and ("ffns" not in lacking or name != "random")
    assert Evidence(heads=HEADS, prefix_matching=PREFIX).missing(name, True, False) == []


def test_pruning_induction_heads_first_from_the_command_line(tiny_opt, tmp_path, capsys):
    from engine.__main__ import main
    from tests.engine.fixtures import write_questions

    task = write_questions(tmp_path / "own.jsonl", 8)
    words = ["evaluate", "--model", str(tiny_opt), "--precision", "fp32", "--task", str(task), "--prune-heads", "50",
             "--cache", str(tmp_path / "store"), "--json", "--ranking"]  # fmt: skip
    masks = {}
    for name in ("induction-first", "induction-protected"):
        assert main([*words, name]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["heads_pruned"] == 4
        masks[name] = result["mask"]
    assert masks["induction-first"] != masks["induction-protected"]
