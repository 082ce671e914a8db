"""Copying, OV and QK scores of attention-only models whose heads were built to copy, to anti-copy and to do induction,
and TransformerLens's own detector on the same tokens."""

import numpy as np
import pytest
import torch

from engine.heads import probes
from engine.heads.circuits import ov_copying_eigenvalues, qk_trace
from engine.models.loading import LoadSpec, load
from tests.engine.fixtures import family_folder, loaded, saved

D_MODEL, N_HEADS = 512, 8
D_HEAD = D_MODEL // N_HEADS


def built(tiny_opt, folder, change, n_layers=1, n_ctx=128, ffn_dim=8):
    """An OPT folder with near-orthogonal embeddings, no positions, silent FFNs and heads, then changed by `change`."""
    from transformers import OPTConfig, OPTForCausalLM

    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=512, hidden_size=D_MODEL, word_embed_proj_dim=D_MODEL, ffn_dim=ffn_dim, num_hidden_layers=n_layers,
        num_attention_heads=N_HEADS, max_position_embeddings=n_ctx, bos_token_id=2, eos_token_id=2,
    )  # fmt: skip
    model = OPTForCausalLM(config).eval()
    with torch.no_grad():
        decoder = model.model.decoder
        decoder.embed_tokens.weight.copy_(torch.randn(512, D_MODEL) / D_MODEL**0.5)
        decoder.embed_positions.weight.zero_()
        for layer in decoder.layers:
            for module in (layer.fc1, layer.fc2, layer.self_attn.out_proj):
                module.weight.zero_()
        change(decoder)
    return loaded(saved(model, folder, tiny_opt))


def test_copying_and_eigenvalues_of_a_copying_an_anti_copying_and_a_random_head(tiny_opt, tmp_path):
    half = D_MODEL // 2  # tokens are in the first half of the residual stream, positions in the second

    def change(decoder):
        attention, positions = decoder.layers[0].self_attn, decoder.embed_positions.weight
        decoder.embed_tokens.weight[:, half:] = 0
        positions[:, half:] = torch.randn(len(positions), half)
        for head in range(3):
            rows = slice(head * D_HEAD, (head + 1) * D_HEAD)
            for projection in (attention.q_proj, attention.k_proj):  # every position looks at itself
                projection.weight[rows] = 0
                projection.weight[rows, half : half + D_HEAD] = 3 * torch.eye(D_HEAD)
            attention.v_proj.weight[rows] = 0
            basis = torch.linalg.qr(torch.randn(half, D_HEAD))[0]
            read, write = (basis.T, basis) if head < 2 else (torch.randn(D_HEAD, half), torch.randn(half, D_HEAD))
            attention.v_proj.weight[rows, :half] = read
            attention.out_proj.weight[:half, rows] = -write if head == 1 else write

    model = built(tiny_opt, tmp_path, change)
    copied = probes.copying(model, 25, [np.random.default_rng(seed) for seed in range(10)])["copying"].mean(0)[0]
    eigen = ov_copying_eigenvalues(model)[0]
    assert copied[0] > 0.95 and copied[1] < -0.9
    assert eigen[0] > 0.95 and eigen[1] < -0.95 and abs(eigen[2]) < 0.3
    # a random head raises half of 25 tokens by random amounts, and the attended one gets its share: 4 / 25 - 1
    assert copied[2] == pytest.approx(4 / 25 - 1, abs=0.15)


def test_the_trace_of_a_true_induction_head_is_far_above_all_others(tiny_opt, tmp_path):
    """Layer 0, head 3 copies tokens to another place of the stream; layer 1, head 5 looks for its own token there."""
    third = D_MODEL // 2

    def change(decoder):
        decoder.embed_tokens.weight[:, third:] = 0
        first, second = (layer.self_attn for layer in decoder.layers)
        basis = torch.linalg.qr(torch.randn(third, D_HEAD))[0]
        rows = slice(3 * D_HEAD, 4 * D_HEAD)
        first.v_proj.weight[rows] = 0
        first.v_proj.weight[rows, :third] = basis.T
        first.out_proj.weight[third : third + D_HEAD, rows] = torch.eye(D_HEAD)
        rows = slice(5 * D_HEAD, 6 * D_HEAD)
        second.q_proj.weight[rows] = 0
        second.q_proj.weight[rows, :third] = basis.T
        second.k_proj.weight[rows] = 0
        second.k_proj.weight[rows, third : third + D_HEAD] = torch.eye(D_HEAD)

    model = built(tiny_opt, tmp_path, change, n_layers=2)
    scores = np.zeros((2, N_HEADS))
    scores[0, 3] = 1.0  # the one that looks at the token before
    trace = qk_trace(model, scores)
    assert np.isnan(trace[0]).all()
    others = np.delete(trace[1], 5)
    assert trace[1, 5] > 0 and trace[1, 5] > 20 * np.abs(others).max()


def plain_norm(rows, norm):
    return (rows - rows.mean(-1, keepdim=True)) * norm.weight


def test_weight_scores_equal_the_full_matrices_over_the_vocabulary(tiny_opt):
    """The (n_vocab, n_vocab) matrices themselves, which are only ever built here."""
    model = load(LoadSpec(str(tiny_opt), "fp32"))
    shape, decoder = model.identity.shape, model.model.model.decoder
    rng = np.random.default_rng(0)
    previous = rng.random((shape.n_layers, shape.n_heads))
    eigen, trace = ov_copying_eigenvalues(model), qk_trace(model, previous)
    with torch.no_grad():
        tokens = decoder.embed_tokens.weight.double()
        written = torch.zeros_like(tokens)
        for number, layer in enumerate(decoder.layers):
            attention, norm = layer.self_attn.double(), layer.self_attn_layer_norm.double()
            outs = []
            for head in range(shape.n_heads):
                rows = slice(head * shape.d_head, (head + 1) * shape.d_head)
                out = plain_norm(tokens, norm) @ attention.v_proj.weight[rows].T @ attention.out_proj.weight[:, rows].T
                outs.append(previous[number, head] * out)
                full = plain_norm(out, decoder.final_layer_norm.double()) @ tokens.T
                found = torch.linalg.eigvals(full)
                assert eigen[number, head] == pytest.approx(float(found.real.sum() / found.abs().sum()), abs=2e-3)
                query = plain_norm(tokens, norm) @ attention.q_proj.weight[rows].T
                key = plain_norm(written, norm) @ attention.k_proj.weight[rows].T
                if number:
                    expected = float((query * key).sum())  # trace of query @ key.T
                    assert trace[number, head] == pytest.approx(expected, rel=1e-3, abs=1e-3)
            written = written + sum(outs)


def test_transformer_lens_detects_the_same_heads(tiny_opt, tmp_path):
    """Its `detect_head` over an eager model's own patterns, on our tokens.

    It divides by all attention, one a row, ours by the rows that can show the pattern at all. Its previous-token
    pattern counts the first token after BOS, ours does not: BOS is where idle heads look.
    """
    from types import SimpleNamespace

    from transformer_lens.head_detector import detect_head

    from tests.engine.test_induction_equals_plain_loops import attentions

    model = loaded(family_folder("opt", tiny_opt, tmp_path))
    shape, period = model.identity.shape, 7
    cfg = SimpleNamespace(device="cpu", n_ctx=shape.n_ctx, n_layers=shape.n_layers, n_heads=shape.n_heads,
                          dtype=torch.float32)  # fmt: skip

    def detected(tokens, name):
        pattern = torch.from_numpy(attentions(model, tokens))
        cache = {("pattern", layer, "attn"): pattern[layer] for layer in range(shape.n_layers)}
        reader = SimpleNamespace(cfg=cfg, to_tokens=lambda _: torch.tensor([tokens]))
        return detect_head(reader, "", name, cache=cache).numpy() * len(tokens), pattern.numpy()

    def generator():
        return [np.random.default_rng(5)]

    tokens = probes.repeated_tokens(model, period, 4, generator())[0].tolist()
    ours = probes.prefix_matching(model, period, generator())
    for theirs, name in (("induction_head", "prefix_matching"), ("duplicate_token_head", "duplicate_token")):
        np.testing.assert_allclose(ours[name][0] * 3 * period, detected(tokens, theirs)[0], atol=1e-4)
    ours = probes.previous_token(model, 30, generator())["previous_token"][0]
    story = model.tokenizer(probes.story(), add_special_tokens=False).input_ids
    first = int(generator()[0].integers(0, len(story) - 30))
    sums, pattern = detected([2, *story[first : first + 30]], "previous_token_head")
    np.testing.assert_allclose(ours * 29, sums - pattern[:, :, 1, 0], atol=1e-4)
