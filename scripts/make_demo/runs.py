"""Trains and measures the runs that come with the app: `python -m scripts.make_demo.runs --work DIR [NAME ...]`.

Each name is a recipe of `engine.training.recipe`: the same as `headroom train --recipe NAME --out DIR/NAME` and then
`headroom trajectory`. What a stopped call has done is found again. Of two runs three snapshots come with the app too.

With `--embedded RUN` it is the embedded model's own run, in the folder RUN: a small OPT on prose and Python, repeated
tokens and episodes of the question families. `--corpus DIR` trains it first, from wherever it was stopped; without, it
is measured as far as it is. That on fewer texts: 8 layers of 6 heads take longer.
"""

import argparse
import copy
import math
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cache import Store
from engine.checkpoints.names import RECIPE
from engine.demo import RUN as EMBEDDED_RUN
from engine.demo import runs_folder
from engine.models.session import Session
from engine.progress import Progress
from engine.training.folders import Run
from engine.training.measuring import TrajectoryPlan, target_at, trajectory
from engine.training.model import Trainable, measure_losses
from engine.training.recipe import RECIPES
from engine.training.running import begin, train
from engine.training.snapshots import whole_folder
from engine.training.trajectory import Trajectory, encode, of_log, series_of
from scripts.make_demo.corpus import BEGINNING, training_text
from scripts.make_demo.recipe import DemoRecipe, Rows, rows_by_step

FIRST_POSITION = 2  # OPT's table of positions has two rows that are not used
SPREAD, SPREAD_OF_POSITIONS = 0.02, 0.04
NAMES = ("plain", "smeared", "smeared-seed-1", "smeared-seed-2", "smeared-hapax", "smeared-hapax-seed-1",
         "smeared-hapax-seed-2", "plain-2-layers", "smeared-2-layers", "curriculum", "curriculum-1-layer",
         "curriculum-3-layers", "curriculum-mlp", "curriculum-seed-1", "curriculum-batch-4")  # fmt: skip
OF_LOG = ("two-layers", "one-layer")  # which read no text: their logs have all that is shown
# Trained again, as the text of this computer has changed since: the twins of the runs without loss on copies.
AGAIN = {"smeared-twin": "smeared", "smeared-twin-seed-1": "smeared-seed-1"}
# Five sixths of a record are losses of passages, which the statements do not read.
WITHOUT_PASSAGES = {"smeared-seed-2", "smeared-hapax-seed-1", "smeared-hapax-seed-2", *AGAIN}
WITH_WEIGHTS = {"curriculum": (0.3, 0.4, 1.0), "smeared": (0.25, 0.5, 1.0)}  # shares of the tokens
PLAN = TrajectoryPlan(n_texts=500, n_ablated_texts=60, around=5)
PLAN_OF_EMBEDDED = TrajectoryPlan(n_texts=96, n_ablated_texts=12, around=5)
LONG, DENSE = 6000, (0.2, 0.46)  # snapshots; share of the tokens in which every one is measured, elsewhere every other


def new_opt(recipe: DemoRecipe) -> Any:
    """An OPTForCausalLM with random weights: normal, 0.02 wide, what writes into the stream 1 / sqrt(2 n_layers) of
    that. The table of positions starts as sines and cosines, twice as large; nothing else is laid in."""
    from transformers import AutoModelForCausalLM, OPTConfig

    torch.manual_seed(recipe.seed)
    config = OPTConfig(
        vocab_size=recipe.n_vocab, hidden_size=recipe.d_model, word_embed_proj_dim=recipe.d_model,
        num_hidden_layers=recipe.n_layers, num_attention_heads=recipe.n_heads, ffn_dim=4 * recipe.d_model,
        max_position_embeddings=recipe.n_ctx, dropout=0.0, attention_dropout=0.0, init_std=SPREAD, bos_token_id=2,
        eos_token_id=2, pad_token_id=1,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    decoder: Any = model.model.decoder
    with torch.no_grad():
        for layer in decoder.layers:
            layer.self_attn.out_proj.weight /= math.sqrt(2 * recipe.n_layers)
            layer.fc2.weight /= math.sqrt(2 * recipe.n_layers)
        n_pairs, slowest = recipe.d_model // 2, 2 / recipe.n_ctx
        rates = slowest ** (torch.arange(n_pairs) / (n_pairs - 1))  # radians a token, from 1 on
        angles = torch.arange(len(decoder.embed_positions.weight))[:, None] * rates
        decoder.embed_positions.weight.copy_(
            SPREAD_OF_POSITIONS * math.sqrt(2) * torch.cat([angles.sin(), angles.cos()], 1)
        )
    return model


class EmbeddedModel(nn.Module):
    """An OPTForCausalLM, `opt`, with a forward pass of its own to be trained by."""

    def __init__(self, recipe: DemoRecipe) -> None:
        super().__init__()
        self.opt = new_opt(recipe)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, n, n_vocab)."""
        return self.opt(input_ids=tokens).logits

    def patterns(self, tokens: Tensor) -> list[Tensor]:
        """Attention patterns (batch, n_heads, n, n) of every layer."""
        return list(self.opt(input_ids=tokens, output_attentions=True).attentions)

    def loss(self, rows: Rows) -> Tensor:
        """Weighted mean of nats a token, every token but each row's first. Computed in bf16."""
        tokens, weights, first_position = torch.from_numpy(rows[0]), torch.from_numpy(rows[1][:, 1:]), rows[2]
        wanted = weights > 0
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.opt.lm_head(self.hidden_states(tokens[:, :-1], first_position)[wanted])
        losses = F.cross_entropy(logits.float(), tokens[:, 1:][wanted], reduction="none")
        return (losses * weights[wanted]).sum() / weights.sum()

    def hidden_states(self, tokens: Tensor, first_position: int) -> Tensor:
        """What the unembedding reads, (batch, n, d_model), where the first token has that position.

        The same as OPT's own forward pass. Attention written out: in bf16 with heads of 32 dimensions it is trained
        half as fast again as through torch's fused one on a CPU.
        """
        decoder, n = self.opt.model.decoder, tokens.shape[1]
        x = decoder.embed_tokens(tokens) + decoder.embed_positions.weight[first_position + FIRST_POSITION :][:n]
        future = torch.full((n, n), -1e4).triu_(1)
        for layer in decoder.layers:
            attention = layer.self_attn
            read = layer.self_attn_layer_norm(x)
            q, k, v = (part(read).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
                       for part in (attention.q_proj, attention.k_proj, attention.v_proj))  # fmt: skip
            scores = (q @ k.mT) * attention.scaling
            pattern = (scores + future.to(scores.dtype)).softmax(-1, dtype=scores.dtype)
            x = x + attention.out_proj((pattern @ v).transpose(1, 2).flatten(2))
            x = x + layer.fc2(F.relu(layer.fc1(layer.final_layer_norm(x))))
        return decoder.final_layer_norm(x)


def start(recipe: DemoRecipe) -> tuple[EmbeddedModel, list[torch.optim.Optimizer]]:
    """The model before the first step; Muon for the matrices of its layers, AdamW for positions and the rest."""
    model = EmbeddedModel(recipe)
    groups: dict[str, list[Tensor]] = {"layers": [], "positions": [], "others": []}
    for name, weights in model.named_parameters():
        kind = "positions" if "embed_positions" in name else "others"
        groups["layers" if ".layers." in name and weights.dim() == 2 else kind].append(weights)
    muon = torch.optim.Muon(groups["layers"], weight_decay=0.02, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    rest = [{"params": groups["positions"]}, {"params": groups["others"]}]
    return model, [muon, torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0, fused=True)]


def save(model: EmbeddedModel, recipe: DemoRecipe, tokenizer_file: Path, folder: Path) -> None:
    """Writes the model folder as transformers would: config, fp16 safetensors, tokenizer files."""
    names = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    with whole_folder(folder, recipe, tokenizer_file, **names) as aside:
        copy.deepcopy(model.opt).to(torch.float16).save_pretrained(aside)


EMBEDDED = Trainable(training_text, start, rows_by_step, partial(measure_losses, beginning=BEGINNING), save)


def steps_measured(run: Run) -> tuple[int, ...]:
    """Of the snapshots of a run those that its record holds: more than 40."""
    steps = run.steps()
    if run.recipe.n_steps > LONG:
        last = steps[-1]
        return tuple(step for at, step in enumerate(steps) if step in (0, last)
                     or DENSE[0] <= step / last <= DENSE[1] or at % 2 == (len(steps) - 1) % 2)  # fmt: skip
    return tuple(step for at, step in enumerate(steps) if at == 0 or (at - 1) % 5 != 2 or step == steps[-1])


def small(found: Trajectory, name: str) -> Trajectory:
    """The record as it is shipped: large arrays in 16 bits, and a name without local folders."""
    half = {each: getattr(found, each).astype(np.float16) for each in ("by_index", "token_losses", "ablated_losses")}
    passages = {} if name in WITHOUT_PASSAGES else found.passages
    return replace(found, name=name, passages=passages, **half)


def ship(found: Trajectory, name: str) -> None:
    """Writes the record among the app's own files."""
    runs_folder().mkdir(exist_ok=True)
    (runs_folder() / f"{name}.safetensors").write_bytes(encode(small(found, name)))


def ship_weights(run: Run, found: Trajectory, name: str) -> None:
    """Writes the snapshots that come with a record."""
    folder = runs_folder()
    if name in WITH_WEIGHTS:
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
        shutil.copyfile(run.folder / RECIPE, folder / name / RECIPE)
        for share in WITH_WEIGHTS[name]:
            step = min(found.steps, key=lambda step: abs(step / run.recipe.n_steps - share))
            shutil.copytree(run.snapshot(int(step)), folder / name / f"step{step}")


def _last(steps: Iterator[Progress[Any]], words: str) -> Any:
    value = None
    for step in steps:
        value = step.value if step.value is not None else value
        print(f"\r{words}: {step.part:.0%} ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return value


def _measured(session: Session, address: str, plan: TrajectoryPlan, words: str) -> Trajectory:
    series = series_of(address)
    return _last(trajectory(target_at(session, series), series, plan).run(session), words)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the runs that come with the app.")
    parser.add_argument(
        "names", nargs="*", default=(*OF_LOG, *NAMES, *AGAIN), help="recipes by name (default: all that are shipped)"
    )
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs and their results")
    parser.add_argument("--embedded", type=Path, metavar="RUN", help="the embedded model's own run, and no recipe")
    parser.add_argument("--corpus", type=Path, help="folder of .txt or .txt.xz files that RUN is trained on")
    arguments = parser.parse_args()
    session = Session(Store(arguments.work / "store"))
    if arguments.embedded:
        if arguments.corpus:
            corpus, threads = arguments.corpus.absolute(), torch.get_num_threads()
            run = begin(arguments.embedded, DemoRecipe(), corpus, threads, EMBEDDED)
            _last(train(run, EMBEDDED), "training")
        ship(_measured(session, str(arguments.embedded), PLAN_OF_EMBEDDED, "measuring"), EMBEDDED_RUN)
        return
    for name in arguments.names:
        run = begin(arguments.work / name, RECIPES[AGAIN[name] if name in AGAIN else name].recipe)
        _last(train(run), f"{name}, training")
        if name in OF_LOG:
            ship(of_log(name, run.recipe, run.log()), name)
            continue
        steps = ",".join(map(str, steps_measured(run)))
        found = _measured(session, f"{run.folder}@step{{{steps}}}", PLAN, f"{name}, measuring")
        ship(found, name)
        ship_weights(run, found, name)


if __name__ == "__main__":
    main()
