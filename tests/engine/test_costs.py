"""What a mask saves: sizes against counting, times that are measured, stored and told apart from what is not."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engine.accuracy.costs import N_ROUNDS, WAYS, cost
from engine.measurement import Workload
from engine.models.masks import Mask, parse_mask
from engine.progress import final
from engine.timing.workload import all_characters
from pages.ui.prune.panels import costs
from tests.conftest import make_tiny_opt
from tests.engine.fixtures import finished, questions_in, target_in


@pytest.fixture
def asked(tmp_path, tiny_opt, session):
    """Session, target and ten questions: everything that `cost` asks for of the tiny model, but the mask."""
    return everything(tmp_path, tiny_opt, session)


@pytest.fixture
def asked_of_eight(tmp_path, session):
    """The same of a model with eight heads a layer."""
    (tmp_path / "eight").mkdir()
    return everything(tmp_path, make_tiny_opt(tmp_path / "eight", n_heads=8), session)


def everything(tmp_path, folder, session):
    rows = [{"context": f"He counted {i} boats.", "choices": [" Yes", " No"], "gold": i % 2} for i in range(10)]
    file = tmp_path / "boats.jsonl"
    for each in (file, file.with_suffix(".train.jsonl")):
        each.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return session, target_in(session, folder), questions_in(file, session, sample="stratified")


def measured(asked, mask, timed=True):
    return final(cost(*asked[1:], mask, timed).run(asked[0]))


def stored(asked, mask, timed=True):
    return cost(*asked[1:], mask, timed).stored(asked[0])


def mask_of(asked, text):
    return parse_mask(text, asked[1].shape)


def test_sizes_are_those_of_the_weights_that_are_left(asked):
    """d_model 32, 4 heads of 8, FFN 64, fp32: all counted by hand."""
    attention, ffn, norms = 4 * (32 * 32 + 32), 2 * 32 * 64 + 64 + 32, 4 * 32
    full = measured(asked, Mask.full(asked[1].shape), timed=False)
    assert full.n_params == full.n_params_full == 2 * (attention + ffn + norms)
    assert full.n_bytes == 4 * full.n_params
    half = measured(asked, mask_of(asked, "L0H0-1"), timed=False)
    saved = 3 * (16 * 32 + 16) + 32 * 16
    assert half.n_params == full.n_params - saved and half.n_bytes_full - half.n_bytes == 4 * saved
    assert half.n_heads_masked == 0
    no_ffn = measured(asked, mask_of(asked, "F1"), timed=False)
    assert no_ffn.n_params == full.n_params - ffn


def test_heads_of_a_layer_that_keeps_most_are_masked(asked_of_eight):
    asked = asked_of_eight
    few, many = (mask_of(asked, text) for text in ("L0H0 L1H*", "L0H0-3"))
    found = measured(asked, few, timed=False)
    assert found.n_heads_masked == 1
    said = " ".join(costs.notes(found, few))
    assert "8 of 9 pruned heads are sliced, the others masked" in said and "not measured yet" in said
    found = measured(asked, many, timed=False)
    assert found.n_heads_masked == 0 and "the others masked" not in " ".join(costs.notes(found, many))


def test_where_nothing_is_sliced_the_times_say_nothing(asked_of_eight):
    asked = asked_of_eight
    one = mask_of(asked, "L0H0")
    said = " ".join(costs.notes(measured(asked, one), one))
    assert "What differs is noise" in said and "0 of 1 pruned heads are sliced" in said and "times as long" not in said
    full = Mask.full(asked[1].shape)
    assert "all three are the same model" in " ".join(costs.notes(measured(asked, full, timed=False), full))


def test_times_are_measured_and_stored_with_the_load(asked):
    mask = mask_of(asked, "L0H0-1 F1")
    assert stored(asked, mask) is None and stored(asked, mask, timed=False) is None
    measured(asked, mask, timed=False)
    sizes = stored(asked, mask, timed=False)
    assert stored(asked, mask) is None
    assert sizes is not None and not sizes.seconds and "not measured yet" in " ".join(costs.notes(sizes, mask))
    assert costs.table(sizes).count("—") == 3
    found = measured(asked, mask)
    again = stored(asked, mask)
    assert again is not None and set(again.seconds) == set(WAYS)
    for way in WAYS:
        assert len(again.seconds[way]) == N_ROUNDS and (again.seconds[way] > 0).all()
        assert np.array_equal(again.seconds[way], found.seconds[way])
    assert again.n_questions == 8 and again.n_cpus > 0 and again.load >= 0
    said = " ".join(costs.notes(again, mask))
    ratio = np.median(again.seconds["sliced"]) / np.median(again.seconds["masked"])
    assert f"Sliced takes **{ratio:.2f}** times" in said and f"load was {again.load:.1f}" in said


def test_an_early_end_leaves_the_model_whole_and_stores_nothing(asked):
    session, target, questions = asked
    mask = mask_of(asked, "L0H* F0")
    before = [(name, id(module)) for name, module in finished(session.loaded(target)).model.named_modules()]
    steps = cost(target, questions, mask).run(session)
    for _ in range(4):
        next(steps)
    steps.close()
    model = finished(session.loaded(target)).model
    assert [(name, id(module)) for name, module in model.named_modules()] == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert stored(asked, mask) is None


def test_the_time_is_measured_again_and_replaced_once_that_is_complete(asked):
    session, target, questions = asked
    mask = mask_of(asked, "L0H0-1")
    first = measured(asked, mask)
    again = cost(target, questions, mask, again=True)
    passes = 3 * (N_ROUNDS + 1)
    assert again.left(session) == Workload({"forward": passes * all_characters(replace(questions, n=8))})
    assert cost(target, questions, mask).left(session) == Workload()
    steps = again.run(session)
    for _ in range(4):
        next(steps)
    steps.close()
    assert np.array_equal(stored(asked, mask).seconds["full"], first.seconds["full"])
    second = final(again.run(session))
    assert not np.array_equal(second.seconds["full"], first.seconds["full"])
    assert np.array_equal(stored(asked, mask).seconds["full"], second.seconds["full"])
