"""What a mask saves: sizes against counting, times that are measured, stored and told apart from what is not."""

import json

import numpy as np
import pytest

from engine.accuracy.costs import N_ROUNDS, WAYS, cost, recall_cost
from engine.models.loading import LoadSpec, Models
from engine.models.masks import Mask, parse_mask
from engine.questions.requests import TaskSpec, get_requests, select
from pages.ui.prune import costs
from tests.conftest import make_tiny_opt


@pytest.fixture
def asked(tmp_path, tiny_opt, store):
    """Everything that `cost` asks for, of the tiny model and ten questions, but the mask."""
    return everything(tmp_path, tiny_opt, store)


def everything(tmp_path, folder, store):
    file = tmp_path / "boats.jsonl"
    file.write_text("".join(
        json.dumps({"context": f"He counted {i} boats.", "choices": [" Yes", " No"], "gold": i % 2}) + "\n"
        for i in range(10)
    ))  # fmt: skip
    models, spec = Models(store), LoadSpec(str(folder), "fp32")
    requests = get_requests(TaskSpec(str(file)), None, store)
    return models, spec, requests, select(requests, None, "stratified"), models.get(spec).identity


def measured(asked, mask, store, timed=True):
    models, spec, requests, selection, identity = asked
    *_, last = cost(models, spec, requests, selection, mask, None, store, timed)
    return last.value


def recalled(asked, mask, store):
    _, spec, requests, selection, identity = asked
    return recall_cost(identity, spec, requests, selection, mask, None, store)


def test_sizes_are_those_of_the_weights_that_are_left(asked, store):
    """d_model 32, 4 heads of 8, FFN 64, fp32: all counted by hand."""
    shape = asked[-1].shape
    attention, ffn, norms = 4 * (32 * 32 + 32), 2 * 32 * 64 + 64 + 32, 4 * 32
    full = measured(asked, Mask.full(shape), store, timed=False)
    assert full.n_params == full.n_params_full == 2 * (attention + ffn + norms)
    assert full.n_bytes == 4 * full.n_params
    half = measured(asked, parse_mask("L0H0-1", shape), store, timed=False)
    saved = 3 * (16 * 32 + 16) + 32 * 16
    assert half.n_params == full.n_params - saved and half.n_bytes_full - half.n_bytes == 4 * saved
    assert half.n_heads_masked == 0
    no_ffn = measured(asked, parse_mask("F1", shape), store, timed=False)
    assert no_ffn.n_params == full.n_params - ffn


def test_heads_of_a_layer_that_keeps_most_are_masked(tmp_path, store):
    (tmp_path / "eight").mkdir()
    asked = everything(tmp_path, make_tiny_opt(tmp_path / "eight", n_heads=8), store)
    few, many = (parse_mask(text, asked[-1].shape) for text in ("L0H0 L1H*", "L0H0-3"))
    found = measured(asked, few, store, timed=False)
    assert found.n_heads_masked == 1
    said = " ".join(costs.notes(found, few))
    assert "8 of 9 pruned heads are sliced, the others masked" in said and "not measured yet" in said
    found = measured(asked, many, store, timed=False)
    assert found.n_heads_masked == 0 and "the others masked" not in " ".join(costs.notes(found, many))


def test_where_nothing_is_sliced_the_times_say_nothing(tmp_path, store):
    (tmp_path / "eight").mkdir()
    asked = everything(tmp_path, make_tiny_opt(tmp_path / "eight", n_heads=8), store)
    one = parse_mask("L0H0", asked[-1].shape)
    said = " ".join(costs.notes(measured(asked, one, store), one))
    assert "What differs is noise" in said and "0 of 1 pruned heads are sliced" in said and "times as long" not in said
    full = Mask.full(asked[-1].shape)
    assert "all three are the same model" in " ".join(costs.notes(measured(asked, full, store, timed=False), full))


def test_times_are_measured_and_stored_with_the_load(asked, store):
    mask = parse_mask("L0H0-1 F1", asked[-1].shape)
    assert recalled(asked, mask, store) is None
    measured(asked, mask, store, timed=False)
    sizes = recalled(asked, mask, store)
    assert sizes is not None and not sizes.seconds and "not measured yet" in " ".join(costs.notes(sizes, mask))
    assert costs.table(sizes).count("—") == 3
    found = measured(asked, mask, store)
    again = recalled(asked, mask, store)
    assert again is not None and set(again.seconds) == set(WAYS)
    for way in WAYS:
        assert len(again.seconds[way]) == N_ROUNDS and (again.seconds[way] > 0).all()
        assert np.array_equal(again.seconds[way], found.seconds[way])
    assert again.n_questions == 8 and again.n_cpus > 0 and again.load >= 0
    said = " ".join(costs.notes(again, mask))
    ratio = np.median(again.seconds["sliced"]) / np.median(again.seconds["masked"])
    assert f"Sliced takes **{ratio:.2f}** times" in said and f"load was {again.load:.1f}" in said


def test_an_early_end_leaves_the_model_whole_and_stores_nothing(asked, store):
    models, spec, requests, selection, identity = asked
    mask = parse_mask("L0H* F0", identity.shape)
    before = [(name, id(module)) for name, module in models.get(spec).model.named_modules()]
    steps = cost(models, spec, requests, selection, mask, None, store)
    for _ in range(4):
        next(steps)
    steps.close()
    model = models.get(spec).model
    assert [(name, id(module)) for name, module in model.named_modules()] == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert recalled(asked, mask, store) is None
