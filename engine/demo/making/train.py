"""Trains the embedded model: `python -m engine.demo.making.train --corpus DIR --work DIR [--tokens N] [--until N]`.

A small OPTForCausalLM on prose and Python, rows of repeated tokens, and in-context episodes of the question families.
What a step sees depends on the recipe and the step alone. The run is a folder like those of the training laboratory
(snapshots, a log, held-out texts), so that it can be measured as one; the state is saved every few minutes, and the
same command goes on with an interrupted run.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from engine.demo.making.corpus import documents
from engine.demo.making.network import look, losses_of, new_model
from engine.demo.making.recipe import N_CTX, DemoRecipe
from engine.demo.making.rows import CorpusText, TrainingRows, rows_of
from engine.demo.making.tokenizer import build_tokenizer

SAVE_EVERY_S, REPORT_EVERY_S = 180, 30
N_HELD_OUT, WINDOWS_A_PIECE = 500, 6
WORKERS_BESIDE_A_GPU = 8
EACH_FOR_TOKENIZER = 4  # every fourth piece is enough to build a vocabulary from


def train(recipe: DemoRecipe, corpus: Path, run: Path, until: int | None = None, device: str = "cpu") -> None:
    """Trains up to `until` tokens (None: to the end) in the folder `run`; progress goes to standard error."""
    tokenizer, text, held_out = _prepared(recipe, corpus, run)
    model = new_model(recipe).to(device)
    optimizers = _optimizers(recipe, model)
    first, before = _resume(run / "state.pt", model, optimizers)
    last, kept = min(recipe.n_steps, (until or recipe.tokens) // recipe.step_tokens), recipe.snapshot_steps()
    started = saved_at = reported_at = time.monotonic()
    sums: dict[str, list[float]] = defaultdict(list)
    batches = iter(DataLoader(_Steps(recipe, tokenizer, text), None, sampler=range(first, last),
                              num_workers=0 if device == "cpu" else WORKERS_BESIDE_A_GPU))  # fmt: skip
    for step in range(first, last + 1):
        seconds = before + time.monotonic() - started
        if step in kept:
            _keep(run, model, tokenizer, held_out, {
                "step": step, "tokens": step * recipe.step_tokens, "seconds": round(seconds),
                "rate": recipe.rate * recipe.share_of_rate(step), "loss": _means(sums)})  # fmt: skip
        if time.monotonic() - saved_at > SAVE_EVERY_S or step == last:
            saved_at = time.monotonic()
            _save(run / "state.pt", model, optimizers, step, seconds)
        if time.monotonic() - reported_at > REPORT_EVERY_S or step == last:
            reported_at = time.monotonic()
            rate = (step - first) * recipe.step_tokens / (reported_at - started)
            means = ", ".join(f"{kind} {mean:.2f}" for kind, mean in _means(sums).items())
            print(
                f"{step * recipe.step_tokens / 1e6:.2f} M tokens, {rate:,.0f}/s: {means}", file=sys.stderr, flush=True
            )
            sums.clear()
        if step == last:
            break
        rows = next(batches)
        loss, by_row = _loss(model, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["highest"] * recipe.share_of_rate(step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        for kind, nats in zip(rows.kinds, by_row.tolist(), strict=True):
            sums[kind].append(nats)


class _Steps(Dataset[TrainingRows]):
    """The rows of each step, by its number."""

    def __init__(self, recipe: DemoRecipe, tokenizer: Any, text: CorpusText) -> None:
        self.source = recipe, tokenizer, text

    def __getitem__(self, step: int) -> TrainingRows:
        return rows_of(*self.source, step)


def _loss(model: Any, rows: TrainingRows) -> tuple[Tensor, Tensor]:
    """(weighted mean of nats a token, mean nats of each row)."""
    weight = torch.from_numpy(rows.weights[:, 1:]).to(model.device)
    losses = losses_of(model, torch.from_numpy(rows.tokens).to(model.device), rows.first_position, weight > 0)
    by_row = torch.zeros_like(weight)
    by_row[weight > 0] = losses.detach()
    counted = (weight > 0).sum(1).clamp_min(1)
    return (losses * weight[weight > 0]).sum() / weight.sum(), by_row.sum(1) / counted


def _optimizers(recipe: DemoRecipe, model: Any) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for the matrices of the layers, AdamW for embeddings, positions, biases and norms."""
    groups: dict[str, list[Tensor]] = {"layers": [], "positions": [], "others": []}
    for name, weights in model.named_parameters():
        kind = "positions" if "embed_positions" in name else "others"
        groups["layers" if ".layers." in name and weights.dim() == 2 else kind].append(weights)
    muon = torch.optim.Muon(
        [{"params": groups["layers"], "highest": recipe.rate}], lr=recipe.rate, weight_decay=0.02, momentum=0.95,
        adjust_lr_fn="match_rms_adamw",
    )  # fmt: skip
    rest = [{"params": groups["positions"], "highest": recipe.rate_of_positions},
            {"params": groups["others"], "highest": recipe.rate_of_others}]  # fmt: skip
    return muon, torch.optim.AdamW(rest, lr=recipe.rate_of_others, betas=(0.9, 0.98), weight_decay=0.0, fused=True)


def _prepared(recipe: DemoRecipe, corpus: Path, run: Path) -> tuple[Any, CorpusText, np.ndarray]:
    """(tokenizer, training text, held-out texts (n, N_CTX) without a beginning), made once and kept in the run."""
    from tokenizers import Tokenizer

    run.mkdir(parents=True, exist_ok=True)
    if not (run / "recipe.json").is_file():
        trained, held_out = documents(corpus)
        tokenizer = build_tokenizer(trained[::EACH_FOR_TOKENIZER], recipe.n_vocab)
        tokenizer.save(str(run / "tokenizer.json"))
        print(f"tokenizer made; encoding {sum(map(len, trained)) / 1e6:.0f} M characters", file=sys.stderr, flush=True)
        np.save(run / "text.npy", np.concatenate([_ids(tokenizer, piece) for piece in trained]))
        whole = [window for piece in held_out for window in _windows(_ids(tokenizer, piece)[1:])]
        np.save(run / "held_out.npy", np.stack(whole[:N_HELD_OUT]))
        about = {"recipe": recipe.as_json(), "text": "held-out prose of the embedded model's corpus"}
        (run / "recipe.json").write_text(json.dumps(about, indent=1) + "\n")
    tokenizer = Tokenizer.from_file(str(run / "tokenizer.json"))
    tokens = np.load(run / "text.npy").astype(np.int64)
    breaks = [id for piece, id in tokenizer.get_vocab().items() if piece in ("ĊĊ", "Ċ")]
    paragraphs = np.flatnonzero(np.isin(tokens, breaks) & ~np.isin(np.roll(tokens, -1), breaks)) + 1
    return tokenizer, CorpusText(tokens, np.concatenate([[0], paragraphs])), np.load(run / "held_out.npy")


def _windows(ids: np.ndarray) -> np.ndarray:
    """(n, N_CTX): the first stretches of a piece, as many as all pieces give about N_HELD_OUT with."""
    return ids[: len(ids) // N_CTX * N_CTX].reshape(-1, N_CTX)[:WINDOWS_A_PIECE]


def _ids(tokenizer: Any, piece: str) -> np.ndarray:
    return np.array(tokenizer.encode(piece, add_special_tokens=True).ids, np.uint16)


def _means(sums: dict[str, list[float]]) -> dict[str, float]:
    """Mean nats a kind of rows; all families together as `episodes` too."""
    found = {kind: round(float(np.mean(nats)), 3) for kind, nats in sorted(sums.items())}
    episodes = [nats for kind, each in sums.items() if kind not in ("text", "repeats") for nats in each]
    return found | ({"episodes": round(float(np.mean(episodes)), 3)} if episodes else {})


def _resume(state: Path, model: Any, optimizers: tuple[torch.optim.Optimizer, ...]) -> tuple[int, float]:
    """(step, seconds) to go on from."""
    if not state.is_file():
        return 0, 0.0
    held = torch.load(state, weights_only=True, map_location="cpu")
    model.load_state_dict(held["model"])
    for optimizer, saved in zip(optimizers, held["optimizers"], strict=True):
        rates = [group["highest"] for group in optimizer.param_groups]
        optimizer.load_state_dict(saved)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["highest"] = rate
    return held["step"], held["seconds"]


def _save(state: Path, model: Any, optimizers: tuple[torch.optim.Optimizer, ...], step: int, seconds: float) -> None:
    """What an interrupted run goes on from."""
    held = {"model": model.state_dict(), "optimizers": [each.state_dict() for each in optimizers]}
    torch.save(held | {"step": step, "seconds": seconds}, state.with_suffix(".new"))
    os.replace(state.with_suffix(".new"), state)


def _keep(run: Path, model: Any, tokenizer: Any, held_out: np.ndarray, line: dict[str, Any]) -> None:
    """A snapshot, and its line in the log."""
    line |= look(model, held_out)
    folder = run / f"step{line['step']}"
    shutil.rmtree(folder, ignore_errors=True)
    export(model, tokenizer, folder)
    log = run / "log.jsonl"
    known = [json.loads(each) for each in log.read_text().splitlines()] if log.is_file() else []
    lines = [*(each for each in known if each["step"] < line["step"]), line]
    log.write_text("".join(json.dumps(each) + "\n" for each in lines))
    print(json.dumps({name: value for name, value in line.items() if name != "loss"}), file=sys.stderr, flush=True)


def export(model: Any, tokenizer: Any, folder: Path) -> None:
    """Writes the model as transformers would: config, fp16 safetensors, tokenizer files."""
    import copy

    copy.deepcopy(model).to("cpu", torch.float16).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>",
        "pad_token": "<pad>", "add_bos_token": True, "model_max_length": N_CTX, "clean_up_tokenization_spaces": False,
    }, indent=1) + "\n")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the embedded model.")
    parser.add_argument("--corpus", type=Path, required=True, help="folder of .txt or .txt.xz files")
    parser.add_argument("--work", type=Path, required=True, help="folder of the run")
    parser.add_argument("--tokens", type=int, default=DemoRecipe.tokens, help="tokens in all")
    parser.add_argument("--until", type=int, help="stop after so many of them; the same command goes on later")
    parser.add_argument("--decay-from", type=float, default=DemoRecipe.decay_from, help="share after which rates fall")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    recipe = DemoRecipe(tokens=arguments.tokens, decay_from=arguments.decay_from, seed=arguments.seed)
    train(recipe, arguments.corpus, arguments.work, arguments.until, arguments.device)


if __name__ == "__main__":
    main()
