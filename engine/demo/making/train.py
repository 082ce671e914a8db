"""Trains the embedded model: `python -m engine.demo.making.train --corpus DIR --out DIR [--steps N] [--resume]`.

A small OPTForCausalLM on real English, repeated sequences and, from the second stage on, in-context episodes of the
question families. What a step sees depends on the seed and the step alone, so the same command gives the same model
on the same machine. Every few minutes the state is saved beside the model, and an interrupted run resumes.
"""

import argparse
import json
import os
import random
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.demo.making.corpus import documents
from engine.demo.making.start import seed_circuits
from engine.demo.making.tokenizer import build_tokenizer

N_CTX = 512
LENGTHS = (168, 168, 168, 504)  # tokens of a row, by step: most steps short, every fourth over the whole context
STAGES = (  # from which step on, shares of the rows, share of the repeats without a beginning token
    (0, {"text": 0.75, "repeats": 0.25}, 0.0),
    (300, {"text": 0.40, "repeats": 0.08, "episodes": 0.52}, 0.0),
    (2400, {"text": 0.62, "repeats": 0.06, "episodes": 0.32}, 0.0),
    (3100, {"text": 0.60, "repeats": 0.10, "episodes": 0.30}, 0.5),
)
SAVE_EVERY_S, REPORT_EVERY_S = 240, 30


@dataclass(frozen=True)
class Recipe:
    """Sizes and rates of one run."""

    n_layers: int = 4
    n_heads: int = 8
    d_model: int = 256
    n_vocab: int = 4096
    batch_tokens: int = 4032
    steps: int = 6000
    decay_from: float = 0.6  # share of the steps after which the rates fall linearly
    peak_rate: float = 2e-3
    answer_weight: float = 5.0
    seed: int = 0


def new_model(recipe: Recipe) -> Any:
    """A freshly initialised OPTForCausalLM of the recipe's shape, with the starting circuits of
    `engine.demo.making.start`."""
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


def batch(recipe: Recipe, tokenizer: Any, text: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray, list[str], int]:
    """(tokens (rows, length + 1), weights of the same shape, kind of each row, first position) of one step."""
    rng = random.Random(f"{recipe.seed} {step}")
    length = LENGTHS[step % len(LENGTHS)]
    rows = recipe.batch_tokens // length
    _, shares, bare_share = next(stage for stage in reversed(STAGES) if step >= stage[0])
    tokens = np.zeros((rows, length + 1), np.int64)
    weights = np.ones((rows, length + 1), np.float32)
    kinds = rng.choices(list(shares), list(shares.values()), k=rows)
    for row, kind in enumerate(kinds):
        if kind == "text":
            start = rng.randrange(len(text) - length - 1)
            tokens[row] = text[start : start + length + 1]
        elif kind == "repeats":
            tokens[row], weights[row] = _repeats(rng, text, recipe.n_vocab, length + 1, bare_share)
        else:
            tokens[row], weights[row] = _episodes(recipe, tokenizer, rng, length + 1)
    return tokens, weights, kinds, 0 if rng.random() < 0.6 else rng.randrange(N_CTX - length)


def _repeats(
    rng: random.Random, text: np.ndarray, n_vocab: int, length: int, bare_share: float
) -> tuple[np.ndarray, np.ndarray]:
    """A beginning token and one sequence again and again: single tokens in natural frequency, evenly drawn ones, or a
    stretch of text; some without the beginning. The first copy carries no weight."""
    period = rng.randint(3, length // 2)
    how = rng.random()
    if how < 0.3:
        start = rng.randrange(len(text) - period)
        unit = text[start : start + period]
    elif how < 0.7:
        unit = text[[rng.randrange(len(text)) for _ in range(period)]]
    else:
        unit = np.array([rng.randrange(4, n_vocab) for _ in range(period)])
    weights = np.ones(length, np.float32)
    weights[: period + 2] = 0
    beginning = [] if bare_share and rng.random() < bare_share else [2]
    return np.concatenate([beginning, np.tile(unit, length // period + 1)])[:length].astype(np.int64), weights


def _episodes(recipe: Recipe, tokenizer: Any, rng: random.Random, length: int) -> tuple[np.ndarray, np.ndarray]:
    """One row of episodes in the harness's few-shot format; only tokens of answers carry weight."""
    from engine.demo.making.families import FAMILIES, episode

    tokens: list[int] = []
    weights: list[float] = []
    while len(tokens) < length:
        items = episode(rng.choice(list(FAMILIES.values())), rng, rng.randint(1, 8))
        spans, at = [], 0
        for item in items:
            end = at + len(item.solved)
            spans.append((end - len(item.answer), end))
            at += len(item.solved) + 2
        encoding = tokenizer.encode("\n\n".join(item.solved for item in items), add_special_tokens=False)
        tokens.append(2)
        weights.append(0.0)
        tokens += encoding.ids
        weights += [recipe.answer_weight if any(a <= start < b for a, b in spans) else 0.0
                    for start, _ in encoding.offsets]  # fmt: skip
    return np.array(tokens[:length]), np.array(weights[:length], np.float32)


def losses_of(model: Any, tokens: np.ndarray, weights: np.ndarray, offset: int) -> tuple[Any, Any]:
    """(losses in nats of the tokens that carry weight, their weights); logits are computed for those alone."""
    import torch

    inputs = torch.from_numpy(tokens)
    positions = torch.arange(offset, offset + inputs.shape[1] - 1).expand(len(inputs), -1)
    hidden = model.model(input_ids=inputs[:, :-1], position_ids=positions, use_cache=False).last_hidden_state
    weight = torch.from_numpy(weights[:, 1:])
    wanted = weight > 0
    logits = model.lm_head(hidden[wanted])
    return torch.nn.functional.cross_entropy(logits, inputs[:, 1:][wanted], reduction="none"), weight[wanted]


def rate_at(recipe: Recipe, step: int) -> float:
    """Rate of one step: up over 100 steps, level, then linearly down to a fiftieth."""
    progress = step / recipe.steps
    down = 1.0 if progress < recipe.decay_from else (1 - progress) / (1 - recipe.decay_from)
    return recipe.peak_rate * min(1.0, (step + 1) / 100) * max(0.02, down)


def train(recipe: Recipe, corpus: Path, out: Path, resume: bool, until: int | None = None) -> None:
    """Trains up to step `until` (None: to the end) and leaves the model in `out`; progress goes to standard error."""
    import torch

    state = out.with_name(out.name + "-state")
    state.mkdir(parents=True, exist_ok=True)
    tokenizer, text = _prepared(recipe, corpus, state)
    model = new_model(recipe)
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.02},
         {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}],
        lr=recipe.peak_rate, betas=(0.9, 0.98),
    )  # fmt: skip
    first, before = 0, 0.0
    if resume and (state / "state.pt").is_file():
        saved = torch.load(state / "state.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first, before = saved["step"], saved["seconds"]
    started = saved_at = reported_at = time.monotonic()
    last = min(recipe.steps, until or recipe.steps)
    sums: dict[str, list[float]] = {}
    for step in range(first, last):
        tokens, weights, kinds, offset = batch(recipe, tokenizer, text, step)
        losses, weight = losses_of(model, tokens, weights, offset)
        loss = (losses * weight).sum() / weight.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(recipe, step)
        optimizer.step()
        row_of = torch.from_numpy(np.nonzero(weights[:, 1:] > 0)[0])
        for row, kind in enumerate(kinds):
            sums.setdefault(kind, []).append(float(losses.detach()[row_of == row].mean()))
        now = time.monotonic()
        if now - reported_at > REPORT_EVERY_S or step + 1 == last:
            reported_at = now
            means = ", ".join(f"{kind} {np.nanmean(values):.2f}" for kind, values in sorted(sums.items()))
            per_second = (step + 1 - first) * recipe.batch_tokens / max(1, now - started)
            print(f"step {step + 1} of {recipe.steps}, {(step + 1) * recipe.batch_tokens / 1e6:.1f} M tokens, "
                  f"{per_second:,.0f}/s: {means} nats", file=sys.stderr, flush=True)  # fmt: skip
            sums.clear()
        if now - saved_at > SAVE_EVERY_S or step + 1 == last:
            saved_at = now
            seconds = before + now - started
            _save_state(model, optimizer, step + 1, seconds, state)
            _write_out(model, tokenizer, out, recipe, step + 1, seconds)


def _prepared(recipe: Recipe, corpus: Path, state: Path) -> tuple[Any, np.ndarray]:
    """(tokenizer, all text as token ids), made once and kept beside the model's state."""
    from tokenizers import Tokenizer

    if not (state / "text.npy").is_file():
        texts, _ = documents(corpus)
        tokenizer = build_tokenizer(texts, recipe.n_vocab)
        tokenizer.save(str(state / "tokenizer.json"))
        print(f"tokenizer made; encoding {sum(map(len, texts)) / 1e6:.0f} M characters", file=sys.stderr, flush=True)
        ids: list[int] = []
        for encoding in tokenizer.encode_batch(texts, add_special_tokens=True):
            ids += encoding.ids
        np.save(state / "text.npy", np.array(ids, np.uint16))
    return Tokenizer.from_file(str(state / "tokenizer.json")), np.load(state / "text.npy").astype(np.int64)


def _save_state(model: Any, optimizer: Any, step: int, seconds: float, state: Path) -> None:
    """What an interrupted run goes on from."""
    import torch

    held = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "seconds": seconds}
    torch.save(held, state / "state.pt.new")
    os.replace(state / "state.pt.new", state / "state.pt")


def _write_out(model: Any, tokenizer: Any, out: Path, recipe: Recipe, step: int, seconds: float) -> None:
    """The model as it is now, as a checkpoint of its own."""
    fresh = out.with_name(out.name + "-new")
    shutil.rmtree(fresh, ignore_errors=True)
    export(model, tokenizer, fresh)
    done = {"steps_done": step, "tokens": step * recipe.batch_tokens, "seconds": round(seconds)}
    (fresh / "training.json").write_text(json.dumps(done | vars(recipe), indent=1) + "\n")
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
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="steps in all")
    parser.add_argument("--until", type=int, help="stop after so many of them, to go on later with --resume")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on where an interrupted run stopped")
    arguments = parser.parse_args()
    recipe = Recipe(steps=arguments.steps, seed=arguments.seed)
    train(recipe, arguments.corpus, arguments.out, arguments.resume, arguments.until)


if __name__ == "__main__":
    main()
