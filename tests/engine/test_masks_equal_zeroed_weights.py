"""Pruning through hooks is the same as zeroing weights, changes nothing else, and leaves no trace."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import UsageError
from engine.models.masks import Edits, Mask, parse_edits, parse_mask, pruned
from engine.shapes import ModelShape
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import FAMILIES, family_folder, loaded, masks_of, refused_by, zeroed

TOKENS = torch.tensor([[2, 40, 41, 99, 300, 17, 40, 41]])
SHAPE = ModelShape(6, 4, 4, 32, 8, 64, 512, 256)


def logits(model):
    with torch.no_grad():
        return model.model(TOKENS).logits.float()


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.model.modules())


@pytest.mark.parametrize("family", FAMILIES)
def test_hooks_equal_zeroed_weights(family, tiny_opt, tmp_path):
    model = loaded(family_folder(family, tiny_opt, tmp_path / "model"))
    plain, before = logits(model), hooks(model)
    for mask in masks_of(model.identity.shape):
        with pruned(model, mask):
            masked = logits(model)
        with torch.no_grad():
            expected = zeroed(model, mask)(TOKENS).logits
        np.testing.assert_allclose(masked, expected, atol=1e-5)
        assert not torch.equal(masked, plain), mask.text()
        assert torch.equal(logits(model), plain) and hooks(model) == before


@pytest.mark.parametrize("precision", ["int8", "bf16", "fp32"])
def test_keeping_everything_is_the_plain_model_bit_for_bit(precision, tiny_opt):
    model = loaded(tiny_opt, precision)
    plain = logits(model)
    with pruned(model, Mask.full(model.identity.shape)):
        assert torch.equal(logits(model), plain)
    with pruned(model, parse_mask("L0H* F0", model.identity.shape)):
        assert not torch.equal(logits(model), plain)
    assert torch.equal(logits(model), plain)


def test_hooks_are_gone_after_an_exception(tiny_opt):
    model = loaded(tiny_opt)
    with pytest.raises(ZeroDivisionError), pruned(model, parse_mask("L*H* F*", model.identity.shape)):
        assert hooks(model) > 0
        _ = 1 / 0
    assert hooks(model) == 0


def test_a_mask_for_another_model_is_refused(tiny_opt):
    with pytest.raises(UsageError, match="6 x 4"), pruned(loaded(tiny_opt), Mask.full(SHAPE)):
        pass


bits = st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=6, max_size=6)


@pytest.mark.thorough
@settings(max_examples=2000 if IS_THOROUGH else 60)
@given(bits, st.lists(st.booleans(), min_size=6, max_size=6))
def test_text_form_round_trips(heads, ffns):
    mask = Mask.from_arrays(np.array(heads), np.array(ffns))
    assert parse_mask(mask.text(), SHAPE) == mask
    assert parse_mask(mask.text().lower().replace(" ", ", "), SHAPE).key() == mask.key()
    assert mask.n_heads_pruned == 24 - np.sum(heads) and mask.n_ffns_pruned == 6 - np.sum(ffns)


@pytest.mark.parametrize(
    "text, n_heads, n_ffns",
    [("", 0, 0), ("L3H2 L4H* F5 F2-3", 5, 3), ("L*H0", 6, 0), ("F*", 0, 6), ("L1-2H0-1", 4, 0), ("b2 B4-5 F4", 12, 3),
     ("B* keep B0", 20, 5)],
)  # fmt: skip
def test_text_form_means_what_it_says(text, n_heads, n_ffns):
    mask = parse_mask(text, SHAPE)
    assert (mask.n_heads_pruned, mask.n_ffns_pruned) == (n_heads, n_ffns)


MASKS = st.tuples(bits, st.lists(st.booleans(), min_size=6, max_size=6)).map(lambda both: Mask.from_arrays(*both))


def gone(mask):
    """Names of what a mask prunes: heads as (layer, head), FFNs as numbers."""
    heads = {(layer, head) for layer, row in enumerate(mask.heads) for head, kept in enumerate(row) if not kept}
    return heads | {layer for layer, kept in enumerate(mask.ffns) if not kept}


@pytest.mark.thorough
@settings(max_examples=2000 if IS_THOROUGH else 60)
@given(MASKS, MASKS, MASKS)
def test_what_is_named_behind_keep_stays_whatever_prunes_it(prune, keep, levels):
    edits = parse_edits(f"{prune.text()} keep {keep.text()}", SHAPE)
    assert gone(edits.on(levels)) == (gone(levels) | gone(prune)) - gone(keep)
    assert gone(edits.alone) == gone(parse_mask(edits.text(), SHAPE)) == gone(prune) - gone(keep)
    assert parse_edits(edits.text(), SHAPE) == edits
    assert edits.key() == (prune.key() if keep.is_full else f"{prune.key()} keep {keep.key()}")


@pytest.mark.thorough
@settings(max_examples=2000 if IS_THOROUGH else 60)
@given(MASKS, MASKS, MASKS, MASKS, st.booleans())
def test_an_edit_does_what_was_asked_and_nothing_else(prune, keep, levels, named, pruned_now):
    edits = Edits(prune, keep)
    before, after = gone(edits.on(levels)), gone(edits.with_named(named, pruned_now, levels).on(levels))
    assert after == (before | gone(named) if pruned_now else before - gone(named))


def test_a_head_that_is_clicked_twice_leaves_no_trace():
    full, one = Mask.full(SHAPE), parse_mask("L1H0", SHAPE)
    assert parse_edits("", SHAPE).with_named(one, True, full).with_named(one, False, full).text() == ""
    assert parse_edits("", SHAPE).with_named(one, False, one).with_named(one, True, one).text() == ""
    assert parse_edits("", SHAPE).with_named(one, False, one).text() == "keep L1H0"


WRONG = ["L99H0", "L0H9", "F6", "F3-2", "H3", "L3", "L3H5;F2", "prune all", "L0H9 keep L1H0", "F6 keep"]


@pytest.mark.parametrize("text", WRONG)
def test_wrong_text_is_named(text):
    refused_by(UsageError, text.split()[0].replace("*", r"\*"), lambda: parse_mask(text, SHAPE))
