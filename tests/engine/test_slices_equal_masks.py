"""A model without what is pruned, and a last layer computed only where it is read, give the same numbers; the model is
whole again afterwards."""

import copy
from contextlib import nullcontext
from itertools import product
from operator import attrgetter

import pytest
import torch

from engine.accuracy.passes import hidden_states
from engine.accuracy.scoring import read_rows
from engine.models.masks import parse_mask, pruned
from engine.models.slicing import applied, last_layer_at, sliced
from engine.questions.encoding import encode_questions, pack
from engine.questions.rendering import TaskSpec, render_questions
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import EXAMINED, FAMILIES, family_folder, in_turns, loaded, write_questions

IDS = torch.tensor([[2, *range(40, 70)], [2, *range(90, 120)]])
# none to all of a layer's heads, whole and broken key-value groups of Llama (heads 0-1 and 2-3 share)
MASKS = ["", "L0H1", "L0H0-1", "L1H1-3", "L2H0 L2H2", "L0H* F0", "L*H0-2 F1", "L1H* L2H3 F0-2", "L*H* F*",
         "B0", "B1 L0H0-1 F2", "B1-2"]  # fmt: skip
# unless thorough, every family with every mask, and either with both forms
SLICED = [
    (family, text, as_exported)
    for (at, family), (mask, text), as_exported in product(enumerate(FAMILIES), enumerate(MASKS), (False, True))
    if IS_THOROUGH or (at + mask) % 2 == as_exported
]


def logits(model):
    with torch.inference_mode():
        return model.model(input_ids=IDS).logits.float()


@pytest.mark.thorough
@pytest.mark.parametrize("family, text, as_exported", SLICED)
def test_slices_equal_the_mask(family, text, as_exported, model_of):
    model = model_of(family)
    mask, before = parse_mask(text, model.identity.shape), logits(model)
    with pruned(model, mask):
        masked = logits(model)
    with applied(model, sliced(model, mask, as_exported)):
        torch.testing.assert_close(logits(model), masked, atol=1e-4, rtol=1e-4)
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("text", ["L0H1-3 F1", "L*H0-2", "L0H* F0", "L*H* F*"])
@pytest.mark.parametrize("first", ["fresh", "used"])
@pytest.mark.parametrize("family", ["opt", "llama"])
def test_int8_weights_are_sliced_with_their_scales(family, first, text, tiny_opt, tmp_path):
    model = loaded(family_folder(family, tiny_opt, tmp_path), "int8")
    mask = parse_mask(text, model.identity.shape)
    if first == "used":  # bitsandbytes moves the weights when they are first used
        before = logits(model)
    parts = sliced(model, mask)
    with applied(model, parts):
        small = logits(model)
    with pruned(model, mask):
        torch.testing.assert_close(small, logits(model), atol=0.1, rtol=0.02)
    if first == "used":
        assert torch.equal(logits(model), before)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("family", ["opt", "llama"])
def test_slices_are_smaller(family, precision, model_of):
    model = model_of(family, precision)
    shape = model.identity.shape

    def n_params(parts):
        with applied(model, parts):
            layers = model.family.layer_list(model.model)
            return sum(each.numel() for layer in layers for each in layer.parameters())

    full = sliced(model, parse_mask("", shape))
    assert full.swaps == () and full.n_bytes == full.n_bytes_full
    half, none = sliced(model, parse_mask("L*H0-1 F1", shape)), sliced(model, parse_mask("L*H* F*", shape))
    assert n_params(none) < n_params(half) < n_params(full) and none.n_bytes < half.n_bytes < full.n_bytes
    per_ffn = 3 * 32 * 64 if family == "llama" else 2 * 32 * 64 + 64 + 32
    # two of four heads: rows of queries, keys and values with their biases, columns of the output
    per_layer = 16 * 32 * 2 + 8 * 32 * 2 if family == "llama" else 3 * 16 * 33 + 16 * 32
    assert n_params(full) - n_params(half) == per_ffn + 3 * per_layer


@pytest.mark.parametrize("family", FAMILIES)
def test_a_dropped_layer_is_not_run_and_leaves_its_biases_alone(family, model_of):
    """Against a model whose list of layers lacks it: what stays is the bias behind the heads, and OPT-350m's norms."""
    model = copy.deepcopy(model_of(family).model), model_of(family)
    without, whole = model[0], model[1]
    path, _, name = whole.family.layers.rpartition(".")
    layers = whole.family.layer_list(without)
    dropped = layers[1]

    class Rest(torch.nn.Module):
        def forward(self, hidden_states, *args, **kwargs):
            bias = attrgetter(whole.family.attention.out)(dropped).bias
            hidden_states = hidden_states if bias is None else hidden_states + bias * whole.scales.residual
            for norm in ("self_attn_layer_norm", "final_layer_norm") if family == "opt-350m" else ():
                hidden_states = getattr(dropped, norm)(hidden_states)
            return (hidden_states, None) if whole.family.is_adapted else hidden_states

    kept = [layers[0], *([] if whole.family.name == "Llama" else [Rest()]), layers[2]]  # of Llama nothing stays
    setattr(without.get_submodule(path), name, torch.nn.ModuleList(kept))
    without.config.num_hidden_layers = len(kept)
    ran = []
    modules = [module for layer in whole.family.layer_list(whole.model)[1:2] for module in layer.modules()]
    hooks = [each.register_forward_hook(lambda module, args, output: ran.append(module)) for each in modules]
    with applied(whole, sliced(whole, parse_mask("B1", whole.identity.shape))), torch.inference_mode():
        expected = without(input_ids=IDS, use_cache=False).logits
        torch.testing.assert_close(whole.model(input_ids=IDS).logits, expected, atol=1e-5, rtol=1e-5)
    assert {type(module).__name__ for module in ran} <= {"LayerNorm"} and bool(ran) == (family == "opt-350m")
    for hook in hooks:
        hook.remove()


def test_the_model_is_whole_after_an_exception(model_of):
    model = model_of("opt")
    before = logits(model)
    with (
        pytest.raises(RuntimeError, match="stop"),
        applied(model, sliced(model, parse_mask("L*H0-2 F1", model.identity.shape))),
    ):
        raise RuntimeError("stop")
    assert torch.equal(logits(model), before)


@pytest.mark.thorough
@pytest.mark.parametrize("family, text", in_turns(EXAMINED, ["L2H0-2 F2", "L2H*", "B0-1 L2H*", ""]))
def test_the_last_layer_is_computed_only_where_it_is_read(family, text, model_of, tmp_path, monkeypatch):
    model = model_of(family)
    questions = render_questions(TaskSpec(str(write_questions(tmp_path / "own.jsonl", 5)))).questions
    rows = [row for each in encode_questions(questions, model.tokenizer, True, 128) for row in pack(each)]
    parts, sizes = sliced(model, parse_mask(text, model.identity.shape)), []

    def hooks():  # transformers leaves its own in a shared model that another test has asked for patterns
        return [(dict(each._forward_hooks), dict(each._forward_pre_hooks)) for each in model.model.modules()]

    before = hooks()

    def scored(context):
        monkeypatch.setattr("engine.accuracy.passes.last_layer_at", context)
        with applied(model, parts):
            ffn_out = attrgetter(model.family.ffn_out)(model.family.layer_list(model.model)[-1])
            hook = ffn_out.register_forward_hook(lambda module, args, output: sizes.append(output.numel()))
            try:
                return read_rows(model, rows, hidden_states(model, [rows]))
            finally:
                hook.remove()

    for (whole, best), (there, best_there) in zip(
        scored(lambda *args: nullcontext()), scored(last_layer_at), strict=True
    ):
        torch.testing.assert_close(torch.tensor(there), torch.tensor(whole), atol=1e-4, rtol=1e-4)
        assert (best == best_there).all()
    assert sizes[1] < 0.5 * sizes[0]
    assert hooks() == before
