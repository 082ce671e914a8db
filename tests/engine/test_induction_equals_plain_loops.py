"""Induction scores are what plain loops over an eager model's own attentions give, in every family, and what
llm-interpret's formulas give (Bansal's variant)."""

import functools
import json

import numpy as np
import pytest
import torch

from engine.errors import HeadroomError, UsageError
from engine.heads import probes
from engine.heads.induction import SCORES, best_heads, induction, retained
from engine.models.patterns import visited
from engine.models.weights import output_weights
from engine.progress import final
from tests.engine.fixtures import FAMILIES, caught, loaded, refused_by, target_in

N, PERIOD = 2, 6


def generators():
    return [np.random.default_rng((7, example)) for example in range(N)]


def attentions(model, ids):
    """(layer, head, T, T) of one sequence, from the model's own output."""
    model.model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model.model(input_ids=torch.tensor([ids]), output_attentions=True)
    model.model.set_attn_implementation(model.family.attends_by)
    return torch.stack(out.attentions)[:, 0].numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_prefix_matching_and_duplicate_token_equal_loops_over_every_position(family, model_of):
    model = model_of(family)
    found = probes.prefix_matching(model, PERIOD, generators())
    for example, tokens in enumerate(probes.repeated_tokens(model, PERIOD, 4, generators()).tolist()):
        pattern = attentions(model, tokens)
        prefix, duplicate = np.zeros(pattern.shape[:2]), np.zeros(pattern.shape[:2])
        for d in range(1 + PERIOD, len(tokens)):
            for s in range(1, d + 1):
                if s > 1 and tokens[s - 1] == tokens[d]:  # position s follows an earlier copy of what stands at d
                    prefix += pattern[:, :, d, s]
                if s < d and tokens[s] == tokens[d]:
                    duplicate += pattern[:, :, d, s]
        np.testing.assert_allclose(found["prefix_matching"][example], prefix / (3 * PERIOD), atol=1e-5)
        np.testing.assert_allclose(found["duplicate_token"][example], duplicate / (3 * PERIOD), atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_previous_token_equals_a_loop_over_the_story(family, model_of):
    model = model_of(family)
    found = probes.previous_token(model, 30, generators())["previous_token"]
    story = model.tokenizer(probes.story(), add_special_tokens=False).input_ids
    for example, generator in enumerate(generators()):
        first = int(generator.integers(0, len(story) - 30))
        pattern = attentions(model, [2, *story[first : first + 30]])
        expected = sum(pattern[:, :, d, d - 1] for d in range(2, 31)) / 29
        np.testing.assert_allclose(found[example], expected, atol=1e-5)


def final_direction(model, token, norm=True):
    """What the residual stream is multiplied with for a token's logit, from the checkpoint's own tensors."""
    weights = {name.split(".", 1)[-1]: value for name, value in model.model.state_dict().items()}
    row = model.model.get_output_embeddings().weight[token].detach().double()
    if "decoder.project_out.weight" in weights:  # OPT-350m: no final norm
        return row @ weights["decoder.project_out.weight"].double()
    if not norm:
        return row
    row = row * (model.model.state_dict()[f"{model.family.norm}.weight"] + model.family.norm_offset)
    takes_mean = "RMSNorm" not in type(model.family.final_norm(model.model)).__name__
    return row - row.mean() if takes_mean else row


def head_output(model, layer, head, z):
    module = model.family.layer_modules(model.model)[layer][0]
    weight = module.weight.detach().double()
    weight = weight if type(module).__name__ == "Conv1D" else weight.T
    d_head = model.identity.shape.d_head
    written = z.double() @ weight[head * d_head : (head + 1) * d_head]
    after = model.family.norms_after[0]
    if not after:
        return written
    return written * (getattr(model.family.layer_list(model.model)[layer], after).weight + model.family.norm_offset)


def z_of_layers(model, tokens):
    """What goes into each layer's output projection, (T, H * d_head) a layer."""
    outs = [out for out, _ in model.family.layer_modules(model.model)]
    with torch.no_grad(), caught(*outs) as seen:
        model.model(input_ids=torch.tensor([tokens]))
    return [seen[out][0] for out in outs]


@pytest.mark.parametrize("family", FAMILIES)
def test_copying_equals_a_loop_over_heads_positions_and_tokens(family, model_of):
    model = model_of(family)
    shape = model.identity.shape
    found = probes.copying(model, PERIOD, generators())["copying"]
    for example, tokens in enumerate(probes.random_tokens(model, PERIOD, generators()).tolist()):
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
                expected = np.clip(4 * total / PERIOD - 1, -1, 1)
                assert found[example, layer, head] == pytest.approx(expected, abs=1e-4)


def reference_prefix(model, tokens, length, credit_bos=False):
    """llm-interpret's prefix matching, its indices spelled out; `credit_bos` is its deviation D8."""
    pattern, total = attentions(model, tokens), 0.0
    for d in range(length + 1, 4 * length + 1):
        for copy in range(d // length):
            s = copy * length + d % length + 1
            if s == 1 and not credit_bos:
                continue
            total = total + pattern[:, :, d, s]
    return total / (3 * length)


def reference_copying(model, tokens):
    """llm-interpret's copying score with all its deviations (D9), one position after the other, for pre-norm OPT."""
    opt, shape = model.model.model.decoder, model.identity.shape
    ids = torch.tensor([tokens])
    with torch.no_grad():
        positions = torch.arange(len(tokens))
        embedded = opt.embed_tokens(ids) + opt.embed_positions.weight[positions + 2]
        scores = np.zeros((shape.n_layers, shape.n_heads))
        for number, layer in enumerate(opt.layers):
            x = layer.self_attn_layer_norm(embedded)[0]
            attention = layer.self_attn
            split = functools.partial(torch.chunk, chunks=shape.n_heads, dim=-1)
            queries, keys = split(attention.q_proj(x)), split(attention.k_proj(x))
            values = split(attention.v_proj(x))
            for head in range(shape.n_heads):
                raw = queries[head] @ keys[head].T / shape.d_head**0.5
                raw = raw.masked_fill(torch.ones_like(raw).triu(1).bool(), -torch.inf)
                pattern = raw.softmax(-1)
                alone = torch.zeros_like(x)
                alone[:, head * shape.d_head : (head + 1) * shape.d_head] = values[head]
                probability = model.model.lm_head(attention.out_proj(alone)).softmax(-1)
                total = 0.0
                for d in range(1, len(tokens)):
                    so_far = probability[d, ids[0, : d + 1]]
                    raised = (so_far - so_far.mean()).relu()
                    total += float(raised[pattern[d].argmax()] / raised.sum()) if raised.sum() else 0.0
                scores[number, head] = total / (len(tokens) - 1)
    return scores


def test_bansals_variant_is_llm_interprets_formula(model_of):
    model = model_of("opt")
    prefix = probes.prefix_matching(model, PERIOD, generators())["prefix_matching"]
    for example, tokens in enumerate(probes.repeated_tokens(model, PERIOD, 4, generators()).tolist()):
        np.testing.assert_allclose(prefix[example], reference_prefix(model, tokens, PERIOD), atol=1e-5)
        assert np.abs(prefix[example] - reference_prefix(model, tokens, PERIOD, credit_bos=True)).max() > 1e-3
    copied = probes.copying_bansal(model, PERIOD, generators())["copying"]
    for example, tokens in enumerate(probes.repeated_tokens(model, 4 * PERIOD, 1, generators()).tolist()):
        np.testing.assert_allclose(copied[example], reference_copying(model, tokens), atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_bansals_copying_runs_in_every_family_and_stays_a_share(family, model_of):
    scores = probes.copying_bansal(model_of(family), PERIOD, generators())["copying"]
    assert np.isfinite(scores).all() and scores.min() >= 0 and scores.max() <= 1


def test_a_visit_leaves_the_model_as_it_was(model_of):
    def stop(*_):
        raise RuntimeError("stop")

    model = model_of("opt")
    ids = torch.tensor([[2, 40, 41, 99]])
    with torch.no_grad():
        before = model.model(input_ids=ids).logits
        for everywhere in (False, True):
            with pytest.raises(RuntimeError, match="stop"), visited(model, stop, everywhere):
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


def test_random_tokens_come_from_the_merges_without_the_ends(tiny_opt, model_of):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_opt)
    merges = json.loads((tiny_opt / "tokenizer.json").read_text())["model"]["merges"]
    ids = [tokenizer.convert_tokens_to_ids("".join(m if isinstance(m, list) else m.split(" "))) for m in merges]
    aside = int(0.04 * len(ids))
    pool = probes.random_token_pool(tokenizer)
    assert pool.tolist() == ids[aside : len(ids) - aside]
    assert not set(pool) & set(tokenizer.all_special_ids)
    first, second = probes.random_tokens(model_of("opt"), 20, generators())
    assert len(set(first)) == len(set(second)) == 20 and (first != second).any()
    refused_by(HeadroomError, "has only", lambda: probes.random_tokens(model_of("opt"), len(pool) + 1, generators()))


def test_every_score_is_of_all_heads_but_the_trace_of_the_first_layer(target, session):
    found = final(induction(target, "olsson", 0).run(session))
    assert set(found.mean) == set(SCORES) and found.n["prefix_matching"] == 10
    assert {scores.shape for scores in found.mean.values()} == {(target.shape.n_layers, target.shape.n_heads)}
    assert np.isnan(found.mean["qk_trace"][0]).all() and np.isfinite(found.mean["qk_trace"][1:]).all()
    assert induction(target, "olsson", 1).stored(session) is None


def test_bansals_lengths_that_do_not_fit_are_left_out_and_said(tiny_opt, session, monkeypatch):
    monkeypatch.setattr(probes, "random_token_pool", lambda tokenizer: np.arange(4, 500))  # the tiny one has too few
    target = target_in(session, tiny_opt)
    scores = final(induction(target, "bansal", 0).run(session))
    window = target.shape.n_ctx
    fitting = [length for length in range(25, 224, 2) if 4 * length + 1 <= window]
    assert scores.n["copying"] == len(fitting) < 100
    assert f"only {len(fitting)} of 100" in scores.note
    refused_by(UsageError, "olsson, bansal", lambda: list(induction(target, "other", 0).run(session)))


def test_retained_capacity_and_best_heads_of_a_small_example():
    scores = np.array([[0.5, -1.0], [0.25, 0.25]])
    np.testing.assert_allclose(retained(scores, np.array([1, 2, 0, 3])), [1, 1, 0.75, 0.25, 0])
    assert [name for name, _ in best_heads(scores, 2)] == ["L0H0", "L1H0"]
    undefined = np.array([[np.nan, np.nan], [np.nan, 0.25]])
    assert [name for name, _ in best_heads(undefined, 2)] == ["L1H1"]
