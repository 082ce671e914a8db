"""Heads replaced at the last tokens, all in one pass of short rows, give what a plain loop of full passes gives."""

from contextlib import ExitStack

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.accuracy.scoring import logits_of
from engine.errors import HeadroomError
from engine.heads import last_token
from engine.heads.last_token import head_outputs, hidden_changed, hidden_with
from engine.models.masks import parse_mask, pruned
from tests.engine.fixtures import STOCK, family_folder, loaded, refused_by

IDS = list(range(2, 42))  # longer than the windows of the tiny models


def plain_loop(model, family, instead, back, zeroed=()):
    """(1 + L * H, V): logits of a model of transformers at the last token, one full pass per head; heads in `zeroed`
    give 0."""

    def put(layer, head, values, at):
        def hook(module, args):
            z = args[0].clone()
            z[0, at, 8 * head : 8 * head + 8] = values
            return (z, *args[1:])

        return family.layer_modules(model)[layer][0].register_forward_pre_hook(hook)

    found = []
    for replaced in [None, *((layer, head) for layer in range(3) for head in range(4))]:
        with torch.inference_mode(), ExitStack() as hooks:
            for layer, head in zeroed:
                hooks.enter_context(put(layer, head, 0.0, slice(None)))
            if replaced is not None:
                hooks.enter_context(put(*replaced, instead[replaced], -back))
            found.append(model(torch.tensor([IDS])).logits[0, -1])
    return torch.stack(found)


def logits(model, instead, back):
    with torch.inference_mode():
        return logits_of(model, hidden_with(model, IDS, instead, back))


@pytest.mark.parametrize("family", STOCK)
def test_every_head_replaced_equals_a_full_pass_each(family, tiny_opt, tmp_path, monkeypatch):
    monkeypatch.setattr(last_token, "ROWS", 7)  # a part begins in the middle of a layer
    folder = family_folder(family, tiny_opt, tmp_path / "model")
    model, instead = loaded(folder), torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0))
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for back in (1, 2):
        expected = plain_loop(plain, model.family, instead, back)
        torch.testing.assert_close(logits(model, instead, back), expected, atol=1e-5, rtol=1e-5)
        assert (expected[1:9] - expected[0]).abs().amax(1).min() > 1e-4


@pytest.mark.parametrize("family", STOCK)
def test_every_layers_input_changed_equals_a_full_pass_each(family, tiny_opt, tmp_path):
    folder = family_folder(family, tiny_opt, tmp_path / "model")
    model, generator = loaded(folder), torch.Generator().manual_seed(0)
    more = torch.randn(3, model.identity.shape.d_model, generator=generator)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def added(layer):
        def add(module, args, kwargs):
            stream = (args[0] if args else kwargs["hidden_states"]).clone()
            stream[0, -1] += more[layer]
            return ((stream, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": stream})

        return model.family.layer_list(plain)[layer].register_forward_pre_hook(add, with_kwargs=True)

    expected = []
    for layer in (None, 0, 1, 2):
        with torch.inference_mode(), ExitStack() as hooks:
            if layer is not None:
                hooks.enter_context(added(layer))
            expected.append(plain(torch.tensor([IDS])).logits[0, -1])
    with torch.inference_mode():
        found = logits_of(model, hidden_changed(model, IDS, lambda layer, stream: stream + more[layer]))
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-5, rtol=1e-5)
    assert (found[1:] - found[0]).abs().amax(1).min() > 1e-4


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_a_pruned_model_and_every_precision(precision, tiny_opt, tmp_path):
    folder = family_folder("llama", tiny_opt, tmp_path / "model")
    model, instead = loaded(folder, precision), 3 * torch.ones(3, 4, 8)
    with pruned(model, parse_mask("L0H1 L2H3", model.identity.shape)):
        found = logits(model, instead, 1).float()
    expected = plain_loop(model.model, model.family, instead, 1, [(0, 1), (2, 3)]).float()
    assert (found - expected).abs().mean() < {"fp32": 1e-6, "bf16": 0.05, "int8": 0.05}[precision]
    assert (expected[1:] - expected[0]).abs().amax(1).min() > 0.5


def test_outputs_of_heads_put_back_change_nothing(tiny_opt):
    model = loaded(tiny_opt)
    for back in (1, 2):
        found = hidden_with(model, IDS, head_outputs(model, IDS, back), back)
        torch.testing.assert_close(found, found[:1].expand_as(found), atol=1e-5, rtol=0)


def test_smeared_keys_are_refused(tiny_opt, tmp_path):
    folder = family_folder("small", tiny_opt, tmp_path / "model")
    refused_by(HeadroomError, "has smeared keys", lambda: hidden_with(loaded(folder), IDS, torch.zeros(3, 4, 8)))
