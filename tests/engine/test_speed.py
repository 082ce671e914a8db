"""What a mask saves: sizes against counting, times that are measured and stored; slices that go on with a cache."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

from engine.accuracy.costs import N_ROUNDS, SIDES, WAYS, cost, speed
from engine.architecture.transformers_internals import keys_and_values
from engine.export.exporting import Export, export
from engine.export.forms import small_model
from engine.measurement import Workload
from engine.models.masks import Mask, parse_mask, pruned
from engine.models.slicing import applied, sliced
from engine.progress import final
from engine.timing.workload import all_characters
from engine.views.pruned import cost_view
from tests.conftest import make_tiny_opt
from tests.engine.fixtures import EXAMINED, STOCK, finished, in_turns, questions_in, target_in, write_questions


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
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 10), session, sample="stratified")
    return session, target_in(session, folder), questions


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
    said = " ".join(cost_view(found, few).notes)
    assert "8 of 9 pruned heads are sliced, the others masked" in said and "not measured yet" in said
    found = measured(asked, many, timed=False)
    assert found.n_heads_masked == 0 and "the others masked" not in " ".join(cost_view(found, many).notes)


def test_times_are_measured_and_stored_with_the_load(asked):
    mask = mask_of(asked, "L0H0-1 F1")
    assert stored(asked, mask) is None and stored(asked, mask, timed=False) is None
    measured(asked, mask, timed=False)
    sizes = stored(asked, mask, timed=False)
    assert stored(asked, mask) is None
    assert sizes is not None and not sizes.seconds and "not measured yet" in " ".join(cost_view(sizes, mask).notes)
    assert [row["ms"] for row in cost_view(sizes, mask).parts[0].rows] == ["–"] * 3
    found = measured(asked, mask)
    again = stored(asked, mask)
    assert again is not None and set(again.seconds) == set(WAYS)
    for way in WAYS:
        assert len(again.seconds[way]) == N_ROUNDS and (again.seconds[way] > 0).all()
        assert np.array_equal(again.seconds[way], found.seconds[way])
    assert again.n_questions == 8 and again.n_cpus > 0 and again.load >= 0
    said = " ".join(cost_view(again, mask).notes)
    ratio = np.median(again.seconds["sliced"]) / np.median(again.seconds["masked"])
    assert f"Sliced takes {ratio:.2f} times" in said and f"load was {again.load:.1f}" in said


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


IDS = torch.tensor([[2, *range(40, 70)]])
# layer 0 without heads, or not run at all, is where transformers counts what a cache has read
MASKS = ["L2H1", "L0H1-3", "L0H*", "L1H* F0", "B0", "B0 L1H0 L2H2", "L*H* F1", "B1-2"]


@pytest.mark.thorough
@pytest.mark.parametrize("family, text", in_turns([name for name in EXAMINED if name in STOCK], MASKS))
def test_slices_with_a_cache_say_what_the_masked_model_says(family, text, model_of):
    model = model_of(family)
    mask = parse_mask(text, model.identity.shape)

    def said(cached=True):
        with torch.inference_mode():
            return model.model.generate(IDS, max_new_tokens=8, do_sample=False, use_cache=cached)[0].tolist()

    with pruned(model, mask):
        expected = said()
    with applied(model, sliced(model, mask, as_exported=True)):
        assert said() == said(cached=False) == expected


@pytest.mark.parametrize(("family", "text"), [("opt", "L0H1 L2H* F1"), ("opt", "B0 L1H0-2"),
                                              ("llama", "L0H0 L1H2-3 L2H0 L2H2")])  # fmt: skip
def test_a_small_folder_caches_as_many_bytes_as_speed_says(family, text, folder_of, session, tmp_path, monkeypatch):
    monkeypatch.setattr("engine.accuracy.costs.N_ROUNDS", 1)
    target = target_in(session, folder_of(family))
    mask = parse_mask(text, target.shape)
    found = final(speed(target, mask).run(session))
    final(export(session, target, Export(mask, str(tmp_path / "out"), "small")))
    cache = transformers.DynamicCache()
    with torch.inference_mode():
        small_model(tmp_path / "out", torch.float32)(input_ids=IDS, past_key_values=cache)
    held = [each for pair in keys_and_values(cache).values() for each in pair]
    n_bytes = sum(each.numel() * each.element_size() for each in held) / IDS.shape[1]
    shared = 2 if family == "llama" else 1
    keys = sum(len({head // shared for head in range(4) if layer[head]}) for layer in mask.heads)
    assert n_bytes == found.cache_bytes["pruned"] == 2 * 4 * (8 * keys + (not any(mask.heads[0])))
    assert found.weight_bytes["pruned"] < found.weight_bytes["full"]


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_bytes_are_those_of_what_is_left_and_turns_are_stored(family, session, folder_of):
    """fp32, 3 layers of 4 heads of 8 (Llama: 2 key and value heads): counted by hand."""
    target = target_in(session, folder_of(family))
    mask = parse_mask("L0H0-1 L1H0-1 F2", target.shape)
    wanted = speed(target, mask)
    assert wanted.stored(session) is None
    found = final(wanted.run(session))
    keys = 2 if family == "llama" else 4
    assert found.cache_bytes["full"] == 3 * keys * 8 * 2 * 4
    assert found.cache_bytes["pruned"] == (2 * keys // 2 + keys) * 8 * 2 * 4
    assert found.weight_bytes["full"] == 4 * target.identity.n_params
    assert found.weight_bytes["pruned"] < found.weight_bytes["full"]
    for rates in (found.prompt, found.generated):
        assert set(rates) == set(SIDES)
        assert all(len(each) == N_ROUNDS and (each > 0).all() for each in rates.values())
    again = wanted.stored(session)
    assert again is not None and again.rows() == found.rows()
    assert speed(target, Mask.full(target.shape)).stored(session) is None
    rows = {row["quantity"]: row for row in found.rows()}
    assert rows["Keys and values"]["unit"] == "bytes/token" and rows["Prompt"]["unit"] == "tokens/s"
    assert rows["Weights"]["ratio"] == found.weight_bytes["pruned"] / found.weight_bytes["full"]
