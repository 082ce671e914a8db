"""`layers` tells what dropping each layer costs, and `--prune-layers` drops those that it puts first."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from engine.importance.layers import LAYERS_BY
from tests.cli.conftest import refused
from tests.engine.fixtures import write_questions


@pytest.fixture
def of_llama(told, tmp_path, folder_of):
    options = ("--precision", "fp32", "--task", write_questions(tmp_path / "own.jsonl", 20))
    return lambda command, *more: told(command, "--model", folder_of("llama"), *options, *more)


def test_what_each_layer_costs_and_how_much_the_ways_agree(of_llama):
    found = of_llama("layers", "--limit", 20, "--greedy", 2)
    columns = {name: [row[name] for row in found["layers"]] for name in found["layers"][0]}
    assert columns["layer"] == [0, 1, 2] and found["passes"] == {"influence": 1, "oracle": 4, "greedy": 5}
    for name, column in (("accuracy lost", "accuracy_lost"), ("nats lost", "gold_nats_lost")):
        expected = spearmanr(columns["influence"], columns[column]).statistic
        assert found["spearman"][name]["srcc"] == pytest.approx(expected)
    assert found["orders"]["influence"] == np.argsort(columns["influence"]).tolist()
    assert found["orders"]["last-first"] == [2, 1, 0] and len(found["orders"]["greedy"]) == 2
    assert sorted(step for step in columns["greedy_step"] if step) == [1, 2]
    first = found["orders"]["greedy"][0]  # nothing is gone yet: the first step is the oracle's
    assert first == found["orders"]["oracle"][0]
    assert columns["greedy_accuracy"][first] == pytest.approx(found["acc"] - columns["accuracy_lost"][first])
    assert of_llama("layers", "--limit", 20, "--greedy", 2)["cached"]


@pytest.mark.parametrize("by", LAYERS_BY)
def test_evaluate_drops_the_layers_that_go_first(by, of_llama):
    ranked = of_llama("layers", "--sample", "stratified", "--greedy", 2)
    pruned = ("--prune-layers", 70, "--layer-order", by, "--seed", 3)
    found = of_llama("evaluate", *pruned)
    if by != "random":
        assert found["layers_dropped"] == sorted(ranked["orders"][by][:2])
    assert len(found["layers_dropped"]) == found["ffns_pruned"] == 2 and found["heads_pruned"] == 8
    assert found["mask"] == " ".join(found["mask"].split()) and found["mask"].startswith("B")
    both = of_llama("evaluate", *pruned, "--mask", "L*H0", "--prune-ffns", 34, "--order", "random")
    assert both["layers_dropped"] == found["layers_dropped"] and both["heads_pruned"] == 9


def test_a_wrong_level_or_way_is_named(cli):
    refused(cli("evaluate", "--task", "demo_copy", "--prune-layers", 101), 2, "101", "choose 0 to 100")
    refused(cli("evaluate", "--task", "demo_copy", "--layer-order", "magic"), 2, "magic", "influence")
