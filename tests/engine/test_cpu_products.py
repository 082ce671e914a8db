"""A bf16 or int8 layer by other products gives what torch's or bitsandbytes' layer gives; the way is measured once and
is part of a key."""

import copy
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.errors import HeadroomError, UsageError
from engine.importance.scores import importance
from engine.kernels import cpu_kernels as linear
from engine.kernels import kernel_choice as tuning
from engine.kernels.cpu_kernels import FP32, INTEGER, ONEDNN, OWN, Kernels
from engine.models.loading import LoadSpec, load
from engine.models.masks import Mask, pruned
from engine.models.slicing import applied, sliced
from engine.records import canonical_key
from tests.engine.fixtures import (
    EXAMINED,
    finished,
    in_turns,
    last,
    questions_in,
    refused_by,
    target_in,
    write_questions,
)

WAYS = {"bf16": Kernels(bf16=FP32), "int8, fp32": Kernels(int8=FP32, gradient=FP32),
        "int8, integer": Kernels(int8=INTEGER), "int8, gradient alone": Kernels(gradient=FP32)}  # fmt: skip
NEEDED = pytest.mark.skipif(not linear.has_exact_product(), reason="this torch has no int8 product")


@pytest.fixture(autouse=True)
def own(monkeypatch):
    """What is loaded takes the libraries' own ways, until others are put in place."""
    monkeypatch.setenv(tuning.PINNED, OWN)


def plain(module):
    """A copy of the layer with torch's or bitsandbytes' own forward."""
    own = copy.copy(module)
    own.__class__ = type(module).__mro__[1]
    return own


def in_ways(folder, ways):
    loaded = load(LoadSpec(str(folder), ways.split(",")[0]))
    linear.install_kernels(loaded.model, WAYS[ways])
    return loaded


@pytest.fixture(params=WAYS)
def in_place(request, tiny_opt):
    """A model whose linear layers all compute in one of the ways."""
    return in_ways(tiny_opt, request.param)


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


@NEEDED
def test_the_integer_product_is_exact():
    rng = np.random.default_rng(0)
    for rows, inputs, outputs in ((0, 8, 3), (1, 16, 5), (3, 7, 1), (70, 33, 19), (33, 5000, 8)):
        a = rng.integers(-127, 128, (rows, inputs), dtype=np.int8)
        b = rng.integers(-127, 128, (outputs, inputs), dtype=np.int8)
        a[:1], b[:1] = 127, -127  # the largest sum that can be
        expected = a.astype(np.int64) @ b.T.astype(np.int64)
        found = linear.exact_product(torch.from_numpy(a), torch.from_numpy(b).t())
        assert found.dtype == torch.int32 and np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize("fault", ["missing", "refused", "inexact"])
def test_without_an_exact_product_the_other_ways_are_taken(fault, tiny_opt, monkeypatch):
    def wrong(a, b, out=None):
        if fault == "refused":
            raise RuntimeError("not implemented for 'Char'")
        return (a.float() @ b.float()).int() + 1

    if fault == "missing":
        monkeypatch.delattr(torch, "_int_mm")
    else:
        monkeypatch.setattr(torch, "_int_mm", wrong)
    linear.has_exact_product.cache_clear()
    try:
        assert not linear.has_exact_product() and linear.int8_ways() == (FP32,)
        with pytest.raises(HeadroomError, match="no exact int8 product; set HEADROOM_PRODUCTS"):
            in_ways(tiny_opt, "int8, integer")
    finally:
        linear.has_exact_product.cache_clear()


@NEEDED
@pytest.mark.thorough
@pytest.mark.parametrize("family, way", in_turns(EXAMINED, ["int8, integer", "int8, fp32"]))
def test_every_family_is_bitsandbytes_up_to_rounding(family, way, folder_of):
    """Layer by layer, on what reaches each within the model, and through the whole model."""
    loaded, seen = in_ways(folder_of(family), way), []
    theirs = load(LoadSpec(str(folder_of(family)), "int8"))

    def note(layer, given, out):
        seen.append((layer, given[0].clone(), out.clone()))

    for layer in layers(loaded):
        layer.register_forward_hook(note)
    tokens = torch.arange(5, 65).view(2, 30)
    with torch.inference_mode():
        whole, expected = (each.model(input_ids=tokens).logits.float() for each in (loaded, theirs))
        assert (whole - expected).norm() < 0.05 * expected.norm()
        for layer, given, out in seen:
            alone = plain(layer)
            alone._forward_hooks = {}
            expected = alone(given)
            assert (out.float() - expected.float()).norm() < 2.0**-8 * expected.float().norm()
    assert len(seen) == len(layers(loaded))


@torch.inference_mode()
def test_an_input_is_quantized_once_for_all_that_take_it(tiny_opt, monkeypatch):
    loaded, calls, real = in_ways(tiny_opt, "int8, fp32"), [], linear.quantize_input
    monkeypatch.setattr(
        linear, "quantize_input", lambda flat, threshold: calls.append(len(flat)) or real(flat, threshold)
    )
    loaded.model(input_ids=torch.arange(5, 25)[None])
    n_layers = loaded.identity.shape.n_layers
    assert len([each for each in layers(loaded) if hasattr(each, "shared")]) == 6 * n_layers
    assert len(calls) == 4 * n_layers, "queries, keys and values share one"
    layer = loaded.model.model.decoder.layers[0].fc1
    first = layer(inputs(layer))  # gone at once: its place in memory may be the next one's
    assert not torch.equal(layer(-inputs(layer)), first)


@torch.inference_mode()
@pytest.mark.parametrize("way", ["int8, integer", "int8, fp32"])
def test_outliers_are_kept_apart_as_bitsandbytes_does(way, tiny_opt):
    loaded = in_ways(tiny_opt, way)
    for layer in (each for each in layers(loaded) if hasattr(each, "state")):
        x = inputs(layer, outliers=True)
        found, expected = layer(x), plain(layer)(x)
        error = (found.float() - expected.float()).norm() / expected.float().norm()
        assert error < 2.0**-8  # theirs is rounded to bf16 once more, before the outliers' part is added
        without = copy.copy(layer)
        without.state = copy.copy(layer.state)
        without.state.threshold = 0.0
        assert (without(x).float() - found.float()).norm() / found.float().norm() > error


@pytest.mark.parametrize("exactly", [False, pytest.param(True, marks=NEEDED)])
def test_int8_by_hand(exactly):
    x = torch.tensor([[1.0, -2.0, 8.0], [0.5, 0.25, 1.0], [0.0, 0.0, 0.0]]).bfloat16()
    weight, scales = torch.tensor([[127, -64, 3], [5, 127, -127]], dtype=torch.int8), torch.tensor([0.5, 2.0])
    bias = torch.tensor([1.0, -1.0]).bfloat16()
    rows = x.float().numpy().astype(np.float64)
    apart, rows = rows[:, 2:], rows * [1, 1, 0]
    rows_scale = np.abs(np.where(np.abs(x.float().numpy()) >= 6, 0, x.float().numpy())).max(1)
    whole = np.round(rows * 127 / np.maximum(rows_scale, 1e-30)[:, None])
    dequantized = weight.double().numpy() * scales.double().numpy()[:, None] / 127
    expected = whole * rows_scale[:, None] / 127 @ dequantized.T + apart @ dequantized[:, 2:].T + bias.double().numpy()
    found = linear.int8_product(linear.quantize_input(x, 6.0), weight, scales, bias, exactly)
    np.testing.assert_allclose(found.double().numpy(), expected, rtol=2.0**-8)


@NEEDED
@pytest.mark.parametrize("n_rows", [0, 1, 3])
def test_few_rows_and_small_blocks(n_rows, monkeypatch):
    x = torch.randn(n_rows, 8).bfloat16()
    x[1:2, 2] = 7.0
    weight, scales = torch.randint(-127, 128, (11, 8), dtype=torch.int8), torch.rand(11) + 0.5

    def products():
        rows = linear.quantize_input(x, 6.0)
        int8 = [linear.int8_product(rows, weight, scales, None, exactly) for exactly in (False, True)]
        return [*int8, linear.bf16_product(x, weight.bfloat16(), None)]

    large = products()
    for name, value in (("BLOCK", 16), ("ROWS", 2), ("CACHED", 1), ("FEWEST", 2)):
        monkeypatch.setattr(linear, name, value)
    for a, b in zip(products(), large, strict=True):
        assert a.shape == (n_rows, 11)
        torch.testing.assert_close(a.float(), b.float(), rtol=2.0**-7, atol=1e-6)
    assert torch.equal(large[0], large[1]), "sums under 2^24 are exact either way"


def test_no_threshold_keeps_nothing_apart():
    x = torch.tensor([[1.0, 100.0, -3.0], [0.0, -0.5, 0.25]]).bfloat16()
    rows = linear.quantize_input(x, 0.0)
    assert rows.columns is None and rows.apart is None
    assert rows.whole.tolist() == [[1, 127, -4], [0, -127, 64]]
    assert linear.quantize_input(x, 6.0).columns.tolist() == [1]


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


@pytest.fixture
def measured(monkeypatch):
    """Ways as if measured here; a list that fills with how often."""
    monkeypatch.delenv(tuning.PINNED)
    asked = []
    found = Kernels(bf16=FP32, int8=FP32, gradient=FP32)
    monkeypatch.setattr(tuning, "measured_products", lambda: asked.append(1) or found)
    return asked


def test_the_tuning_is_measured_once_and_kept(store):
    found = tuning.tuning(store)
    assert found.small_threads >= 1 and tuning.tuning(store) == found
    other = tuning.Tuning(3)
    fields = {"torch": tuning.version("torch"), "processor": tuning.processor(), "cores": tuning._all_threads(),
              "system": tuning.platform.platform()}  # fmt: skip
    key = canonical_key("tuning", fields)
    assert store.get(key) is not None
    for blob in (b"not a record", of({"threads": "many"}), of({"fp32_products": True, "small_threads": 9})):
        store.put(key, blob)
        assert tuning.tuning(store) == found, "a record of another form is measured anew"
    store.put(key, of(tuning.asdict(other)))
    assert tuning.tuning(store) == other  # what is kept counts


def of(tuned):
    return tuning.encode(tuning.Record({}, {"tuning": tuned}))


def test_the_ways_are_measured_once_and_kept(store, measured):
    assert tuning.known_products(store) is None
    assert tuning.products(store) == tuning.products(store) == tuning.known_products(store)
    assert len(measured) == 1
    store.put(tuning._products_key(), b"not a record")
    assert tuning.products(store).int8 == FP32 and len(measured) == 1, "within a process it stays"
    for blob in (b"not a record", of({"int8": "by hand"}), of({"ways": 1})):
        tuning._kept_products.cache_clear()
        store.put(tuning._products_key(), blob)
        assert tuning.known_products(store) is None
    tuning._kept_products.cache_clear()


def test_a_user_may_pin_a_way(store, monkeypatch, measured):
    for way, expected in (
        ("own", Kernels()),
        ("integer", Kernels(int8=INTEGER)),
        ("fp32", Kernels(FP32, FP32, FP32, FP32)),
    ):
        monkeypatch.setenv(tuning.PINNED, way)
        assert tuning.products(store) == expected
    ways = Kernels(FP32, INTEGER, attention=FP32)
    written = "bf16=fp32,int8=integer,gradient=own,attention=fp32,fp32=own"
    assert tuning.pinned_as(ways.not_own(gradients=True)) == written
    for text in (written, "attention=fp32,int8=integer,bf16=fp32"):
        monkeypatch.setenv(tuning.PINNED, text)
        assert tuning.products(store) == ways, "those of another machine"
    for text in ("bf16=integer", "int8=integer,fast", "int8=integer,int8=fp32", "16=own", "int8="):
        monkeypatch.setenv(tuning.PINNED, text)
        refused_by(UsageError, "HEADROOM_PRODUCTS", lambda: tuning.products(store))
    monkeypatch.setenv(tuning.PINNED, "fast")
    with pytest.raises(UsageError, match="HEADROOM_PRODUCTS is 'fast'; choose one of own, fp32, integer"):
        tuning.products(store)
    assert not measured


@pytest.mark.parametrize("flags, torch, expected", [
    ("avx2 avx512f avx512_vnni avx512_bf16", "", Kernels(int8=INTEGER, attention=FP32)),
    ("avx2 avx512f avx512_vnni", "", Kernels(FP32, INTEGER, FP32, FP32)),
    ("avx2 avx_vnni", "", Kernels(FP32, INTEGER, FP32, FP32)),
    ("avx2 fma", "", Kernels(FP32, FP32, FP32, FP32)),
    ("avx2 fma", "3.0.0", None),
    ("", "", None),
])  # fmt: skip
def test_a_small_model_takes_the_ways_that_its_processor_names(store, monkeypatch, measured, flags, torch, expected):
    tuning.named_products.cache_clear()
    if torch:
        monkeypatch.setattr(tuning, "version", lambda package: torch)
    monkeypatch.setattr(tuning, "abilities", lambda: frozenset(flags.split()))
    assert tuning.known_products(store, 1000) == expected
    assert tuning.known_products(store) is None, "for a larger one they are measured"
    found = tuning.products(store, 1000)
    assert len(measured) == (expected is None), "nothing is measured before the first screen where it says"
    assert found == (expected or Kernels(bf16=FP32, int8=FP32, gradient=FP32))
    tuning.named_products.cache_clear()


def test_a_model_is_loaded_without_what_only_training_and_compiling_need():
    code = """
import sys
from engine.models.loading import LoadSpec, load
load(LoadSpec("demo"))
import torch
left_out = ("torch._dynamo", "torch._inductor", "torch.distributed.tensor", "scipy.optimize", "sympy")
print([name for name in left_out if name in sys.modules], torch.compile.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[] compile\n", "")


def test_the_fastest_way_is_taken_where_it_is_clearly_faster():
    seconds = [{OWN: 2.0, FP32: 8.0, INTEGER: 1.0}, {OWN: 4.0, FP32: 9.0, INTEGER: 2.5}]
    assert tuning.fastest(seconds, 1.1) == INTEGER
    assert tuning.fastest(seconds, 2.0) == OWN, "it must be clearly faster"
    assert tuning.fastest([{OWN: 8.0, FP32: 1.0, INTEGER: 5.0}], 1.1) == FP32, "without a fast 8-bit product"
    assert tuning.fastest([{OWN: 1.0, FP32: 3.0}], 1.1) == OWN
    assert tuning.fastest([{OWN: 1.0}], 1.1) == OWN, "there is no other way"


def test_every_way_is_measured():
    ways = tuning._ways(4, 32, 16)
    assert ways.keys() == {"bf16", "int8", "gradient", "attention", "fp32"} and ONEDNN in ways.pop("fp32")
    assert all(FP32 in each and OWN in each for each in ways.values())
    assert (INTEGER in ways["int8"]) == linear.has_exact_product()
    assert all(seconds > 0 for each in ways.values() for seconds in each.values())


@pytest.mark.parametrize("way", [OWN, FP32, pytest.param(INTEGER, marks=NEEDED)])
def test_loading_obeys_the_ways(way, tiny_opt, monkeypatch):
    monkeypatch.setenv(tuning.PINNED, way)
    expected = {"bf16": way == FP32, "int8": way != OWN, "fp32": False}
    for precision in expected:
        model = load(LoadSpec(str(tiny_opt), precision)).model
        assert any(hasattr(module, "product") for module in model.modules()) == expected[precision]


def test_a_key_names_the_ways_that_are_not_the_libraries_own(session, tiny_opt, monkeypatch):
    own = {each: target_in(session, tiny_opt, each).key(gradients=True) for each in ("int8", "bf16", "fp32")}
    assert not any("products" in key for key in own.values())
    all_fp32 = dict.fromkeys(("bf16", "int8", "gradient", "attention"), FP32)
    named = {FP32: (all_fp32, {"bf16": FP32, "attention": FP32}), INTEGER: ({"int8": INTEGER}, None)}
    for way, (int8, bf16) in named.items():
        monkeypatch.setenv(tuning.PINNED, way)
        for precision, expected in (("int8", int8), ("bf16", bf16), ("fp32", None)):
            key = target_in(session, tiny_opt, precision).key(gradients=True)
            assert key.get("products") == expected
            assert {name: value for name, value in key.items() if name != "products"} == own[precision]
    target = replace(target_in(session, tiny_opt, "int8"), products=Kernels(gradient=FP32))
    assert target.key() == own["int8"] != target.key(gradients=True), "answers need no gradient"
    assert target.receipt(1.0)["products"] == {
        "bf16": OWN,
        "int8": OWN,
        "gradient": FP32,
        "attention": OWN,
        "fp32": OWN,
    }


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_onednn_gives_fp32_numbers_under_keys_of_its_own(family, folder_of, session, tmp_path, monkeypatch):
    """Layers, slices, gradients and a whole model, against torch's own."""
    theirs, own = load(LoadSpec(str(folder_of(family)), "fp32")), target_in(session, folder_of(family), "fp32")
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 3), session)
    scores = last(importance(own, questions, "heads").run(session))
    monkeypatch.setenv(tuning.PINNED, "fp32=onednn")
    ours, target = load(LoadSpec(str(folder_of(family)), "fp32")), target_in(session, folder_of(family), "fp32")
    assert target.key() == {**own.key(), "products": {"fp32": ONEDNN}}
    assert len(layers(ours)) == len([each for each in theirs.model.modules() if type(each) is torch.nn.Linear])
    tokens = torch.arange(5, 65).view(2, 30)
    found, expected = (each.model(input_ids=tokens).logits for each in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for layer in layers(ours):
        x = inputs(layer).float().requires_grad_()
        found, expected = (torch.autograd.grad(each(x).square().sum(), x)[0] for each in (layer, plain(layer)))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    again = last(importance(target, questions, "heads").run(session))
    assert not again.cached
    np.testing.assert_allclose(again.value.scores, scores.value.scores, atol=1e-6)


@NEEDED
def test_no_result_of_one_way_is_given_for_another(session, tiny_opt, tmp_path, monkeypatch):
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 3), session)
    for way in (OWN, INTEGER, FP32):
        monkeypatch.setenv(tuning.PINNED, way)
        target = target_in(session, tiny_opt, "int8")
        assert not last(importance(target, questions, "heads").run(session)).cached
        assert last(importance(target, questions, "heads").run(session)).cached
        assert session.models.loaded.products == target.products, "the model that is held follows"
    with pytest.raises(HeadroomError, match="have changed since .* load it again"):
        finished(session.loaded(replace(target, products=Kernels())))
