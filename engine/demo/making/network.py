"""The embedded model while it is trained: initial weights, a forward pass in bf16, and a quick look at what it does."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.demo.making.recipe import N_CTX, DemoRecipe
from engine.demo.making.tokenizer import BEGINNING, SPECIAL

FIRST_POSITION = 2  # OPT's table of positions has two rows that are not used
SPREAD, SPREAD_OF_POSITIONS = 0.02, 0.04
N_TEXTS, N_EXAMPLES, PERIOD = 64, 10, 25
LAST_TOKENS = 128  # of a held-out text, whose losses count


def new_model(recipe: DemoRecipe) -> Any:
    """An OPTForCausalLM with random weights: normal, 0.02 wide, what writes into the stream 1 / sqrt(2 n_layers) of
    that. The table of positions starts as sines and cosines, twice as large; nothing else is laid in."""
    from transformers import AutoModelForCausalLM, OPTConfig

    torch.manual_seed(recipe.seed)
    config = OPTConfig(
        vocab_size=recipe.n_vocab, hidden_size=recipe.d_model, word_embed_proj_dim=recipe.d_model,
        num_hidden_layers=recipe.n_layers, num_attention_heads=recipe.n_heads, ffn_dim=4 * recipe.d_model,
        max_position_embeddings=N_CTX, dropout=0.0, attention_dropout=0.0, init_std=SPREAD, bos_token_id=2,
        eos_token_id=2, pad_token_id=1,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    decoder: Any = model.model.decoder
    with torch.no_grad():
        for layer in decoder.layers:
            layer.self_attn.out_proj.weight /= math.sqrt(2 * recipe.n_layers)
            layer.fc2.weight /= math.sqrt(2 * recipe.n_layers)
        n_pairs = recipe.d_model // 2
        rates = (2 / N_CTX) ** (torch.arange(n_pairs) / (n_pairs - 1))  # radians a token, from 1 to 2 / N_CTX
        angles = torch.arange(len(decoder.embed_positions.weight))[:, None] * rates
        decoder.embed_positions.weight.copy_(
            SPREAD_OF_POSITIONS * math.sqrt(2) * torch.cat([angles.sin(), angles.cos()], 1)
        )
    return model


def hidden_states(model: Any, tokens: Tensor, first_position: int = 0, patterns: list[Tensor] | None = None) -> Tensor:
    """What the unembedding reads, (batch, n, d_model); the patterns of each layer are appended to `patterns`.

    The same as OPT's own forward pass. Attention written out: in bf16 with heads of 32 dimensions it is trained half
    as fast again as through torch's fused one on a CPU.
    """
    decoder, n = model.model.decoder, tokens.shape[1]
    x = decoder.embed_tokens(tokens) + decoder.embed_positions.weight[first_position + FIRST_POSITION :][:n]
    future = torch.full((n, n), -1e4, device=tokens.device).triu_(1)
    for layer in decoder.layers:
        attention = layer.self_attn
        read = layer.self_attn_layer_norm(x)
        q, k, v = (part(read).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
                   for part in (attention.q_proj, attention.k_proj, attention.v_proj))  # fmt: skip
        scores = (q @ k.mT) * attention.scaling
        pattern = (scores + future.to(scores.dtype)).softmax(-1, dtype=scores.dtype)
        if patterns is not None:
            patterns.append(pattern)
        x = x + attention.out_proj((pattern @ v).transpose(1, 2).flatten(2))
        x = x + layer.fc2(F.relu(layer.fc1(layer.final_layer_norm(x))))
    return decoder.final_layer_norm(x)


def losses_of(model: Any, tokens: Tensor, first_position: int, wanted: Tensor) -> Tensor:
    """Nats of the wanted tokens alone; tokens (batch, n + 1), wanted (batch, n) of those behind the first."""
    with torch.autocast(tokens.device.type, torch.bfloat16):
        logits = model.lm_head(hidden_states(model, tokens[:, :-1], first_position)[wanted])
    return F.cross_entropy(logits.float(), tokens[:, 1:][wanted], reduction="none")


def look(model: Any, held_out: np.ndarray) -> dict[str, Any]:
    """For a line of the log: nats a token of held-out text with the beginning token and without, of both copies of
    random tokens, and the highest prefix matching and previous-token scores with their heads. In fp32."""
    with torch.inference_mode():
        texts = torch.from_numpy(held_out[:N_TEXTS].astype(np.int64)).to(model.device)
        bare = _nats(model, texts)[:, -LAST_TOKENS:].mean()
        begun = _nats(model, F.pad(texts[:, :-1], (1, 0), value=BEGINNING))[:, -LAST_TOKENS:].mean()
        drawn = np.random.default_rng(0)
        drawn_ids = drawn.integers(len(SPECIAL), model.config.vocab_size, (N_EXAMPLES, PERIOD))
        unit = torch.from_numpy(drawn_ids).to(model.device)
        copies = F.pad(torch.cat([unit, unit, unit], 1), (1, 0), value=BEGINNING)
        nats = _nats(model, copies).mean(0)
        patterns: list[Tensor] = []
        hidden_states(model, copies, patterns=patterns)
    first, second = float(nats[:PERIOD].mean()), float(nats[PERIOD : 2 * PERIOD].mean())
    found: dict[str, Any] = {"text": float(begun), "text_without_beginning": float(bare), "first_copy": first,
                             "second_copy": second}  # fmt: skip
    for name, back in (("prefix_matching", PERIOD - 1), ("previous_token", 1)):
        scores = torch.stack([layer.diagonal(-back, -2, -1)[..., 2:].mean((0, 2)) for layer in patterns])
        best = scores.flatten().topk(min(6, scores.numel()))
        found[name] = [[f"L{at // scores.shape[1]}H{at % scores.shape[1]}", round(value, 3)]
                       for value, at in zip(best.values.tolist(), best.indices.tolist(), strict=True)]  # fmt: skip
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}


def _nats(model: Any, tokens: Tensor) -> Tensor:
    """(batch, n - 1) nats of each token but the first."""
    logits = model.lm_head(hidden_states(model, tokens[:, :-1]))
    return F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none")
