"""Trains the embedded model: `python -m engine.demo.train --corpus DIR --out DIR [--minutes M] [--resume]`.

A small OPTForCausalLM on real English, repeated sequences and in-context episodes of the question families. The
schedule goes by the share of the time given, the data by the seed alone. Every few minutes the state is saved beside
the model, so that an interrupted run resumes.
"""

import argparse
import json
import math
import os
import random
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.demo.corpus import documents
from engine.demo.families import FAMILIES, episode
from engine.demo.start import seed_circuits
from engine.demo.tokenizer import build_tokenizer

N_CTX = 512
SHARES = {"text": 0.40, "repeats": 0.15, "episodes": 0.45}  # of the rows, once the first stage is over
FIRST_STAGE = 0.03  # share of the time spent on repeats alone, short periods first
SAVE_EVERY_S, REPORT_EVERY_S = 240, 30


@dataclass(frozen=True)
class Recipe:
    """Sizes and rates of one run; `tokens` of a batch are rows x length."""

    n_layers: int = 4
    n_heads: int = 8
    d_model: int = 256
    n_vocab: int = 4096
    rows: int = 24
    length: int = 192
    peak_rate: float = 1e-3
    answer_weight: float = 3.0
    seed: int = 0


def new_model(recipe: Recipe) -> Any:
    """A freshly initialised OPTForCausalLM of the recipe's shape, with the starting circuits of `engine.demo.start`."""
    import torch
    from transformers import OPTConfig, OPTForCausalLM

    torch.manual_seed(recipe.seed)
    config = OPTConfig(
        vocab_size=recipe.n_vocab, hidden_size=recipe.d_model, word_embed_proj_dim=recipe.d_model,
        num_hidden_layers=recipe.n_layers, num_attention_heads=recipe.n_heads, ffn_dim=4 * recipe.d_model,
        max_position_embeddings=N_CTX, dropout=0.0, attention_dropout=0.0, bos_token_id=2, eos_token_id=2,
        pad_token_id=1,
    )  # fmt: skip
    model = OPTForCausalLM._from_config(config, attn_implementation="sdpa")
    seed_circuits(model, recipe.seed)
    return model


def batch(recipe: Recipe, tokenizer: Any, text: np.ndarray, rng: random.Random, progress: float) -> Any:
    """(tokens (rows, length + 1), weights of the same shape, kind of each row) for one step."""
    tokens = np.zeros((recipe.rows, recipe.length + 1), np.int64)
    weights = np.ones((recipe.rows, recipe.length + 1), np.float32)
    kinds = []
    for row in range(recipe.rows):
        early = progress < FIRST_STAGE
        kind = "repeats" if early else rng.choices(list(SHARES), list(SHARES.values()))[0]
        kinds.append(kind)
        if kind == "text":
            start = rng.randrange(len(text) - recipe.length - 1)
            tokens[row] = text[start : start + recipe.length + 1]
        elif kind == "repeats":
            tokens[row] = _repeats(rng, text, recipe.length + 1, progress)
        else:
            tokens[row], weights[row] = _episodes(recipe, tokenizer, rng)
    return tokens, weights, kinds


def _repeats(rng: random.Random, text: np.ndarray, length: int, progress: float) -> np.ndarray:
    """A beginning token and one sequence again and again: single tokens in natural frequency, or a stretch of text."""
    longest = 16 if progress < FIRST_STAGE / 2 else 96
    period = rng.randint(3, longest)
    if rng.random() < 0.3:
        start = rng.randrange(len(text) - period)
        unit = text[start : start + period]
    else:
        unit = text[[rng.randrange(len(text)) for _ in range(period)]]
    return np.concatenate([[2], np.tile(unit, length // period + 1)])[:length]


def _episodes(recipe: Recipe, tokenizer: Any, rng: random.Random) -> tuple[np.ndarray, np.ndarray]:
    """One row of episodes in the harness's few-shot format; tokens of answers weigh more in the loss."""
    tokens: list[int] = []
    weights: list[float] = []
    while len(tokens) < recipe.length + 1:
        family = rng.choice(list(FAMILIES.values()))
        items = episode(family, rng, rng.randint(1, 9))
        text = "\n\n".join(item.solved for item in items)
        spans, at = [], 0
        for item in items:
            spans.append((at + len(item.context), at + len(item.solved)))
            at += len(item.solved) + 2
        encoding = tokenizer.encode(text, add_special_tokens=False)
        tokens.append(2)
        weights.append(0.0)
        tokens += encoding.ids
        weights += [recipe.answer_weight if any(a <= start < b for a, b in spans) else 0.5
                    for start, _ in encoding.offsets]  # fmt: skip
    return np.array(tokens[: recipe.length + 1]), np.array(weights[: recipe.length + 1], np.float32)


def step_loss(model: Any, tokens: np.ndarray, weights: np.ndarray, offset: int) -> Any:
    """Per-token losses (rows, length) in nats and the weights they carry; `offset` shifts the positions."""
    import torch

    inputs = torch.from_numpy(tokens)
    positions = torch.arange(offset, offset + inputs.shape[1] - 1).expand(len(inputs), -1)
    hidden = model.model(input_ids=inputs[:, :-1], position_ids=positions, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden)
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), inputs[:, 1:].flatten(), reduction="none")
    return losses.view(len(inputs), -1), torch.from_numpy(weights[:, 1:])


def train(recipe: Recipe, corpus: Path, out: Path, minutes: float, resume: bool) -> None:
    """Trains for `minutes` and leaves the model in `out`; progress goes to standard error."""
    import torch

    state = out.with_name(out.name + "-state")
    state.mkdir(parents=True, exist_ok=True)
    tokenizer, text = _prepared(recipe, corpus, state)
    model = new_model(recipe)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.98)
    )
    step, before = 0, 0.0
    if resume and (state / "state.pt").is_file():
        saved = torch.load(state / "state.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, before = saved["step"], saved["seconds"]
    started = time.monotonic() - before
    saved_at = reported_at = time.monotonic()
    sums: dict[str, list[float]] = {}
    while (elapsed := time.monotonic() - started) < minutes * 60:
        progress = elapsed / (minutes * 60)
        rng = random.Random(f"{recipe.seed} {step}")
        rate = recipe.peak_rate * min(1, (step + 1) / 100) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        tokens, weights, kinds = batch(recipe, tokenizer, text, rng, progress)
        offset = 0 if rng.random() < 0.6 else rng.randrange(N_CTX - recipe.length)
        losses, weight = step_loss(model, tokens, weights, offset)
        loss = (losses * weight).sum() / weight.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        for row, kind in enumerate(kinds):
            shown = losses[row][weight[row] > 1] if kind == "episodes" else losses[row]
            sums.setdefault(kind, []).append(float(shown.detach().mean()))
        now = time.monotonic()
        if now - reported_at > REPORT_EVERY_S:
            reported_at = now
            means = ", ".join(f"{kind} {np.mean(values):.2f}" for kind, values in sorted(sums.items()))
            per_second = step * tokens.size / max(1, now - started)
            print(f"{elapsed / 60:.1f} min, step {step}, {step * tokens.size / 1e6:.1f} M tokens, {per_second:,.0f}/s: "
                  f"{means} nats", file=sys.stderr, flush=True)  # fmt: skip
            sums.clear()
        if now - saved_at > SAVE_EVERY_S:
            saved_at = now
            _save(model, optimizer, step, now - started, tokenizer, state, out, recipe)
    _save(model, optimizer, step, time.monotonic() - started, tokenizer, state, out, recipe)


def _prepared(recipe: Recipe, corpus: Path, state: Path) -> tuple[Any, np.ndarray]:
    """(tokenizer, all text as token ids), made once and kept beside the model's state."""
    from tokenizers import Tokenizer

    if not (state / "text.npy").is_file():
        texts = documents(corpus)
        tokenizer = build_tokenizer(texts, recipe.n_vocab)
        tokenizer.save(str(state / "tokenizer.json"))
        print(f"tokenizer made; encoding {sum(map(len, texts)) / 1e6:.0f} M characters", file=sys.stderr, flush=True)
        ids: list[int] = []
        for encoding in tokenizer.encode_batch(texts, add_special_tokens=True):
            ids += encoding.ids
        np.save(state / "text.npy", np.array(ids, np.uint16))
    return Tokenizer.from_file(str(state / "tokenizer.json")), np.load(state / "text.npy").astype(np.int64)


def _save(
    model: Any, optimizer: Any, step: int, seconds: float, tokenizer: Any, state: Path, out: Path, recipe: Recipe
) -> None:
    import torch

    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "seconds": seconds},
               state / "state.pt.new")  # fmt: skip
    os.replace(state / "state.pt.new", state / "state.pt")
    fresh = out.with_name(out.name + "-new")
    shutil.rmtree(fresh, ignore_errors=True)
    export(model, tokenizer, fresh)
    (fresh / "training.json").write_text(json.dumps({
        "steps": step, "tokens": step * recipe.rows * (recipe.length + 1), "seconds": round(seconds), **vars(recipe),
    }, indent=1) + "\n")  # fmt: skip
    out.mkdir(exist_ok=True)
    for file in fresh.iterdir():  # the model card and whatever else lies in the folder stays
        os.replace(file, out / file.name)
    fresh.rmdir()


def export(model: Any, tokenizer: Any, folder: Path) -> None:
    """Writes the model as transformers would: config, fp16 safetensors, tokenizer files."""
    import copy

    import torch

    copy.deepcopy(model).to(torch.float16).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>",
        "pad_token": "<pad>", "add_bos_token": True, "model_max_length": N_CTX, "clean_up_tokenization_spaces": False,
    }, indent=1) + "\n")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the embedded model.")
    parser.add_argument("--corpus", type=Path, required=True, help="folder of .txt or .txt.xz files")
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    parser.add_argument("--minutes", type=float, default=45.0, help="time to train")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on where an interrupted run stopped")
    arguments = parser.parse_args()
    train(Recipe(seed=arguments.seed), arguments.corpus, arguments.out, arguments.minutes, arguments.resume)


if __name__ == "__main__":
    main()
