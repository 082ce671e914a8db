"""What pruning saves, measured; and slices that go on with a cache say what the masked model says."""

import pytest
import torch
import transformers

from engine.accuracy.speed import N_ROUNDS, WAYS, speed
from engine.architecture.transformers_internals import keys_and_values
from engine.export.exporting import Export, export
from engine.export.forms import small_model
from engine.models.masks import Mask, parse_mask, pruned
from engine.models.slicing import applied, sliced
from engine.progress import final
from tests.engine.fixtures import STOCK, target_in

IDS = torch.tensor([[2, *range(40, 70)]])
# layer 0 without heads, or not run at all, is where transformers counts what a cache has read
MASKS = ["L2H1", "L0H1-3", "L0H*", "L1H* F0", "B0", "B0 L1H0 L2H2", "L*H* F1", "B1-2"]


@pytest.mark.parametrize("text", MASKS)
@pytest.mark.parametrize("family", STOCK)
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
        assert set(rates) == set(WAYS) and all(len(rates[way]) == N_ROUNDS and (rates[way] > 0).all() for way in WAYS)
    again = wanted.stored(session)
    assert again is not None and again.rows() == found.rows()
    assert speed(target, Mask.full(target.shape)).stored(session) is None
    rows = {row["quantity"]: row for row in found.rows()}
    assert rows["Keys and values"]["unit"] == "bytes/token" and rows["Prompt"]["unit"] == "tokens/s"
    assert rows["Weights"]["ratio"] == found.weight_bytes["pruned"] / found.weight_bytes["full"]
