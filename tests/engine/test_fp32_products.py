"""A bf16 or int8 layer by fp32 products gives what torch's or bitsandbytes' layer gives; the way is measured once."""

import copy

import numpy as np
import pytest
import torch

from engine.models import cpu_products as linear
from engine.models import tuning
from engine.models.loading import LoadSpec, load
from engine.models.masks import Mask, pruned
from engine.models.slicing import applied, sliced
from engine.records import canonical_key


def plain(module):
    """A copy of the layer with torch's or bitsandbytes' own forward."""
    own = copy.copy(module)
    own.__class__ = type(module).__mro__[1]
    return own


@pytest.fixture(params=["bf16", "int8"])
def in_place(request, tiny_opt):
    """A model whose linear layers all compute by fp32 products."""
    loaded = load(LoadSpec(str(tiny_opt), request.param))
    linear.put_in_place(loaded.model)
    return loaded


def layers(loaded):
    found = [module for module in loaded.model.modules() if hasattr(module, "product")]
    assert len(found) > 5
    return found


def inputs(layer, n_rows=70, outliers=False):
    x = torch.randn(2, n_rows // 2, layer.in_features, generator=torch.Generator().manual_seed(0)).bfloat16()
    if outliers:
        x[0, 3, 1], x[1, 5, 4], x[1, 6, 4] = 9.0, -30.0, 7.5
    return x


def ulps(a, b):
    """How many bf16 numbers apart, of values that are not tiny beside the largest."""
    a, b = a.float(), b.float()
    return (a - b).abs() / b.abs().clamp(min=b.abs().max() / 64) / 2.0**-7


@torch.inference_mode()
def test_products_are_the_plain_layers_up_to_one_rounding(in_place):
    for layer in layers(in_place):
        x = inputs(layer)
        found, expected = layer(x), plain(layer)(x)
        assert found.dtype == expected.dtype == torch.bfloat16 and found.shape == expected.shape
        # bitsandbytes' CPU code scales by 6.200124e-05 for 1 / 127^2 = 6.2000124e-05: some roundings go the other way
        assert (found == expected).float().mean() > 0.97
        assert ulps(found, expected).max() <= 1


@torch.inference_mode()
def test_outliers_are_kept_apart_as_bitsandbytes_does(tiny_opt):
    loaded = load(LoadSpec(str(tiny_opt), "int8"))
    linear.put_in_place(loaded.model)
    for layer in (each for each in layers(loaded) if hasattr(each, "state")):
        x = inputs(layer, outliers=True)
        found, expected = layer(x), plain(layer)(x)
        error = (found.float() - expected.float()).norm() / expected.float().norm()
        assert error < 2.0**-8  # theirs is rounded to bf16 once more, before the outliers' part is added
        without = copy.copy(layer)
        without.state = copy.copy(layer.state)
        without.state.threshold = 0.0
        assert (without(x).float() - found.float()).norm() / found.float().norm() > error


def test_int8_by_hand():
    x = torch.tensor([[1.0, -2.0, 8.0], [0.5, 0.25, 1.0], [0.0, 0.0, 0.0]]).bfloat16()
    weight, scales = torch.tensor([[127, -64, 3], [5, 127, -127]], dtype=torch.int8), torch.tensor([0.5, 2.0])
    bias = torch.tensor([1.0, -1.0]).bfloat16()
    rows = x.float().numpy().astype(np.float64)
    apart, rows = rows[:, 2:], rows * [1, 1, 0]
    rows_scale = np.abs(np.where(np.abs(x.float().numpy()) >= 6, 0, x.float().numpy())).max(1)
    whole = np.round(rows * 127 / np.maximum(rows_scale, 1e-30)[:, None])
    dequantised = weight.double().numpy() * scales.double().numpy()[:, None] / 127
    expected = whole * rows_scale[:, None] / 127 @ dequantised.T + apart @ dequantised[:, 2:].T + bias.double().numpy()
    found = linear.int8_product(x, weight, scales, bias, 6.0)
    np.testing.assert_allclose(found.double().numpy(), expected, rtol=2.0**-8)


@pytest.mark.parametrize("n_rows", [0, 1, 3])
def test_few_rows_and_small_blocks(n_rows, monkeypatch):
    monkeypatch.setattr(linear, "BLOCK", 16)
    monkeypatch.setattr(linear, "ROWS", 2)
    x = torch.randn(n_rows, 8).bfloat16()
    weight, scales = torch.randint(-127, 128, (11, 8), dtype=torch.int8), torch.rand(11) + 0.5
    small = linear.int8_product(x, weight, scales, None, 6.0), linear.bf16_product(x, weight.bfloat16(), None)
    monkeypatch.undo()
    large = linear.int8_product(x, weight, scales, None, 6.0), linear.bf16_product(x, weight.bfloat16(), None)
    for a, b in zip(small, large, strict=True):
        assert a.shape == (n_rows, 11)
        torch.testing.assert_close(a.float(), b.float(), rtol=2.0**-7, atol=1e-6)


def test_gradients_reach_the_input_as_through_plain_layers(in_place):
    for layer in layers(in_place):
        x = inputs(layer).requires_grad_()
        found = torch.autograd.grad(layer(x).float().square().sum(), x)[0]
        expected = torch.autograd.grad(plain(layer)(x).float().square().sum(), x)[0]
        error = (found.float() - expected.float()).norm() / expected.float().norm()
        assert found.dtype == torch.bfloat16 and error < 0.01


def test_slices_compute_the_same_way(in_place):
    shape = in_place.identity.shape
    keep = np.ones((shape.n_layers, shape.n_heads), bool)
    keep[0, 1:] = keep[1, 0] = False
    mask = Mask.from_arrays(keep, np.ones(shape.n_layers, bool))
    tokens = torch.arange(5, 25)[None]
    with torch.inference_mode():
        with pruned(in_place, mask):
            masked = in_place.model(input_ids=tokens).logits.float()
        parts = sliced(in_place, mask)
        assert any(hasattr(part, "product") for _, _, part in parts.swaps)
        with applied(in_place, parts):
            smaller = in_place.model(input_ids=tokens).logits.float()
    assert (masked - smaller).abs().max() < 0.05 * masked.abs().max()


def test_the_way_is_measured_once_and_kept(store):
    found = tuning.tuning(store)
    assert found.small_threads >= 1 and tuning.tuning(store) == found
    other = tuning.Tuning(not found.fp32_products, 3)
    fields = {"torch": tuning.version("torch"), "processor": tuning.processor(), "cores": tuning._all_threads(),
              "system": tuning.platform.platform()}  # fmt: skip
    key = canonical_key("tuning", fields)
    assert store.get(key) is not None
    store.put(key, tuning.encode(tuning.Record({}, {"tuning": tuning.asdict(other)})))
    assert tuning.tuning(store) == other  # what is kept counts
    store.put(key, b"not a record")
    assert tuning.tuning(store) == found
    store.put(key, tuning.encode(tuning.Record({}, {"tuning": {"threads": "many"}})))
    assert tuning.tuning(store) == found


@pytest.mark.parametrize(("products", "expected"), [(True, True), (False, False)])
def test_loading_obeys_the_tuning(products, expected, tiny_opt, monkeypatch):
    monkeypatch.setattr("engine.models.loading.tuning", lambda store: tuning.Tuning(products, 1))
    for precision in ("bf16", "int8", "fp32"):
        model = load(LoadSpec(str(tiny_opt), precision)).model
        changed = any(hasattr(module, "product") for module in model.modules())
        assert changed == (expected and precision != "fp32")
