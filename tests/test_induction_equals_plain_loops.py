"""Prefix matching and copying are what plain loops over an eager model's own attentions give, in every family."""

import functools
import json

import numpy as np
import pytest
import torch

from engine.errors import HeadroomError
from engine.induction import copying, prefix_matching, random_token_pool, random_tokens
from engine.patterns import output_weights, visited
from tests.engine_fixtures import family_folder, loaded

FAMILIES = ["opt", "opt-350m", "llama", "gpt2", "gpt_neox"]
N, PERIOD = 2, 6


@pytest.fixture(scope="module")
def model_of(tiny_opt, tmp_path_factory):
    @functools.cache
    def model(family):
        return loaded(family_folder(family, tiny_opt, tmp_path_factory.mktemp(family)))

    return model


def attentions(model, ids):
    """(layer, head, T, T) of one sequence, from the model's own output."""
    model.model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model.model(input_ids=torch.tensor([ids]), output_attentions=True)
    model.model.set_attn_implementation("sdpa")
    return torch.stack(out.attentions)[:, 0].numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_prefix_matching_equals_a_loop_over_every_position(family, model_of):
    model = model_of(family)
    pool = random_token_pool(model.tokenizer)
    expected = []
    for seed in range(N):
        tokens = [2, *np.tile(random_tokens(pool, PERIOD, seed), 4).tolist()]
        pattern = attentions(model, tokens)
        sums = np.zeros(pattern.shape[:2])
        for d in range(1 + PERIOD, len(tokens)):
            for s in range(2, d + 1):
                if tokens[s - 1] == tokens[d]:  # position s follows an earlier copy of what stands at d
                    sums += pattern[:, :, d, s]
        expected.append(sums / (3 * PERIOD))
    found = prefix_matching(model, N, PERIOD)
    np.testing.assert_allclose(found.mean, np.mean(expected, 0), atol=1e-5)
    np.testing.assert_allclose(found.standard_error, np.std(expected, 0, ddof=1) / np.sqrt(N), atol=1e-5)


def final_direction(model, token):
    """What the residual stream is multiplied with for a token's logit, from the checkpoint's own tensors."""
    weights = {name.split(".", 1)[-1]: value for name, value in model.model.state_dict().items()}
    row = model.model.get_output_embeddings().weight[token].detach().double()
    if model.family.name == "Llama":
        return row * weights["norm.weight"]
    if model.family.name == "OPT":
        if "decoder.project_out.weight" in weights:  # OPT-350m: no final norm
            return row @ weights["decoder.project_out.weight"].double()
        row = row * weights["decoder.final_layer_norm.weight"]
    else:
        row = row * weights["ln_f.weight" if model.family.name == "GPT-2" else "final_layer_norm.weight"]
    return row - row.mean()


def head_output(model, layer, head, z):
    module = model.family.layer_modules(model.model)[layer][0]
    weight = module.weight.detach().double()
    weight = weight if type(module).__name__ == "Conv1D" else weight.T
    d_head = model.identity.shape.d_head
    return z.double() @ weight[head * d_head : (head + 1) * d_head]


def z_of_layers(model, tokens):
    """What goes into each layer's output projection, (T, H * d_head) a layer."""
    inputs = {}
    handles = [
        out.register_forward_pre_hook(lambda m, args, layer=layer: inputs.update({layer: args[0].detach()[0]}))
        for layer, (out, _) in enumerate(model.family.layer_modules(model.model))
    ]
    with torch.no_grad():
        model.model(input_ids=torch.tensor([tokens]))
    for handle in handles:
        handle.remove()
    return inputs


@pytest.mark.parametrize("family", FAMILIES)
def test_copying_equals_a_loop_over_heads_positions_and_tokens(family, model_of):
    model = model_of(family)
    shape, pool = model.identity.shape, random_token_pool(model.tokenizer)
    expected = np.zeros((N, shape.n_layers, shape.n_heads))
    for seed in range(N):
        tokens = random_tokens(pool, PERIOD, seed).tolist()
        pattern, inputs = attentions(model, tokens), z_of_layers(model, tokens)
        directions = torch.stack([final_direction(model, token) for token in tokens])
        for layer in range(shape.n_layers):
            for head in range(shape.n_heads):
                total = 0.0
                for d in range(PERIOD):
                    z = inputs[layer][d, head * shape.d_head : (head + 1) * shape.d_head]
                    logits = (directions @ head_output(model, layer, head, z)).detach().numpy()
                    raised = np.maximum(logits - logits.mean(), 0)
                    total += sum(pattern[layer, head, d, s] * raised[s] for s in range(d + 1)) / raised.sum()
                expected[seed, layer, head] = np.clip(4 * total / PERIOD - 1, -1, 1)
    np.testing.assert_allclose(copying(model, N, PERIOD).mean, expected.mean(0), atol=1e-4)


def test_a_visit_leaves_the_model_as_it_was(model_of):
    model = model_of("opt")
    ids = torch.tensor([[2, 40, 41, 99]])
    with torch.no_grad():
        before = model.model(input_ids=ids).logits
        with (
            pytest.raises(RuntimeError, match="stop"),
            visited(model, lambda *_: (_ for _ in ()).throw(RuntimeError("stop"))),
        ):
            model.model(input_ids=ids)
        assert model.model.config._attn_implementation == "sdpa"
        torch.testing.assert_close(model.model(input_ids=ids).logits, before, rtol=0, atol=0)


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_int8_output_weights_are_read_back_to_the_rounding_of_eight_bits(family, model_of):
    model = model_of(family)
    small = loaded(model.spec.model, "int8")
    for layer in range(3):
        exact, rounded = output_weights(model, layer), output_weights(small, layer)
        assert (exact - rounded).abs().max() <= exact.abs().max() / 127


def test_random_tokens_come_from_the_merges_without_the_ends(tiny_opt):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_opt)
    merges = json.loads((tiny_opt / "tokenizer.json").read_text())["model"]["merges"]
    ids = [tokenizer.convert_tokens_to_ids("".join(m if isinstance(m, list) else m.split(" "))) for m in merges]
    aside = int(0.04 * len(ids))
    pool = random_token_pool(tokenizer)
    assert pool.tolist() == ids[aside : len(ids) - aside]
    assert not set(pool) & set(tokenizer.all_special_ids)
    drawn = random_tokens(pool, 20, 3)
    assert len(set(drawn)) == 20 and (drawn == random_tokens(pool, 20, 3)).all()
    assert (drawn != random_tokens(pool, 20, 4)).any()
    with pytest.raises(HeadroomError, match="has only"):
        random_tokens(pool, len(pool) + 1, 0)
