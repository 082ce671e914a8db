"""What a mask saves: sizes against counting, turns that are measured and stored; slices that go on with a cache."""

import numpy as np
import pytest
import torch
import transformers

from engine.accuracy.speed import N_ROUNDS, NEW_TOKENS, PROMPT_TOKENS, SIDES, STEP_TOKENS, speed
from engine.architecture.transformers_internals import keys_and_values
from engine.export.exporting import Export, export
from engine.export.forms import small_model
from engine.measurement import Workload
from engine.models.masks import Mask, parse_mask, pruned
from engine.models.slicing import applied, sliced
from engine.progress import final
from engine.timing.workload import CHARACTERS_A_TOKEN
from tests.conftest import make_tiny_opt
from tests.engine.fixtures import EXAMINED, STOCK, finished, in_turns, target_in


def slices(target, session, text):
    return sliced(finished(session.loaded(target)), parse_mask(text, target.shape))


def test_sizes_are_those_of_the_weights_that_are_left(session, tiny_opt):
    """d_model 32, 4 heads of 8, FFN 64, fp32: all counted by hand."""
    target = target_in(session, tiny_opt)
    attention, ffn, norms = 4 * (32 * 32 + 32), 2 * 32 * 64 + 64 + 32, 4 * 32
    full = slices(target, session, "")
    assert full.n_bytes == full.n_bytes_full == 4 * 2 * (attention + ffn + norms)
    half = slices(target, session, "L0H0-1")
    assert half.n_bytes_full - half.n_bytes == 4 * (3 * (16 * 32 + 16) + 32 * 16)
    assert half.masked.is_full
    assert slices(target, session, "F1").n_bytes == full.n_bytes - 4 * ffn


def test_heads_of_a_layer_that_keeps_most_are_masked(session, tmp_path):
    target = target_in(session, make_tiny_opt(tmp_path, n_heads=8))
    assert slices(target, session, "L0H0 L1H*").masked.text() == "L0H0"
    assert slices(target, session, "L0H0-3").masked.is_full


def test_an_early_end_leaves_the_model_whole_and_stores_nothing(session, tiny_opt):
    target = target_in(session, tiny_opt)
    mask = parse_mask("L0H* F0", target.shape)
    before = [(name, id(module)) for name, module in finished(session.loaded(target)).model.named_modules()]
    steps = speed(target, mask).run(session)
    for _ in range(4):
        next(steps)
    steps.close()
    model = finished(session.loaded(target)).model
    assert [(name, id(module)) for name, module in model.named_modules()] == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert speed(target, mask).stored(session) is None


def test_the_speed_is_measured_again_and_replaced_once_that_is_complete(session, tiny_opt):
    target = target_in(session, tiny_opt)
    mask = parse_mask("L0H0-1", target.shape)
    first, again = final(speed(target, mask).run(session)), speed(target, mask, again=True)
    turns = len(SIDES) * (1 + N_ROUNDS)
    tokens = PROMPT_TOKENS + NEW_TOKENS * STEP_TOKENS
    assert again.left(session) == Workload({"forward": float(turns * tokens * CHARACTERS_A_TOKEN)})
    assert speed(target, mask).left(session) == Workload()

    def stored():
        return speed(target, mask).stored(session).generated["full"]

    steps = again.run(session)
    for _ in range(4):
        next(steps)
    steps.close()
    assert np.array_equal(stored(), first.generated["full"])
    second = final(again.run(session))
    assert not np.array_equal(second.generated["full"], first.generated["full"])
    assert np.array_equal(stored(), second.generated["full"])
    assert second.load >= 0 and second.n_cpus > 0


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
    monkeypatch.setattr("engine.accuracy.speed.N_ROUNDS", 1)
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
