"""The trainer against a plain PyTorch loop of the same model, in nanoGPT's shape: random stretches of the text stacked
into a batch, AdamW fused, gradients clipped. Both on as many threads as torch takes, on the same random text; looks,
snapshots and evaluation are left out of both.

    .venv/bin/python -m tests.benchmarks training
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine.training.recipe import RECIPES, Recipe
from engine.training.running import LARGEST_GRADIENT, begin, train
from engine.training.text import TrainingText
from tests.benchmarks.measure import Comparison, in_turn

N_STEPS, N_ROUNDS = 300, 5
HEADS = "prefix_matching", "previous_token"
FAMILY = "Training small models against a plain loop"


def compare(quick: bool) -> Iterator[Comparison]:
    """Seconds a million tokens, of ours and of the plain loop."""
    rounds = 1 if quick else N_ROUNDS
    for name in ("smeared", "two-layers", "half"):
        recipe = RECIPES[name].recipe
        recipe = replace(recipe, tokens=N_STEPS * recipe.step_tokens, warm_up=0)
        million = N_STEPS * recipe.step_tokens / 1e6
        sides = in_turn([lambda r=recipe: ours(r), lambda r=recipe: plain(r)], rounds)
        costs = [each.per(million) for each in sides]
        rate = f"{1e6 / min(costs[0]):,.0f} against {1e6 / min(costs[1]):,.0f} tokens a second at best"
        about = f"{recipe.in_words}, {recipe.batch} rows of {recipe.n_ctx}"
        said = f"{rate}; loss {sides[0].found:.2f} and {sides[1].found:.2f}"
        yield Comparison(FAMILY, about, "s a million tokens", *costs, f"{rounds} rounds", 1.0, said)


def random_text(recipe: Recipe) -> np.ndarray:
    return np.random.default_rng(0).integers(1, recipe.n_vocab, recipe.tokens + 1).astype(np.uint16)


class NoTokenizer:
    def to_str(self) -> str:
        return "{}"


def ours(recipe: Recipe) -> float:
    """The loss at the end; all of `begin` and `train` but looks and snapshots."""
    import torch

    from engine.training.model import SMALL_MODELS

    found = TrainingText(random_text(recipe), np.zeros((1, 512), np.uint16), NoTokenizer(), "random tokens")
    looked = {"loss": 0.0, "icl": 0.0, "first_copy": 0.0, "second_copy": 0.0} | dict.fromkeys(HEADS, [[0.0]])
    last: list[object] = []
    kind = replace(SMALL_MODELS, text=lambda *_: found, measure=lambda model, *_: last.append(model) or looked,
                   save=lambda *_: None)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for _ in train(begin(Path(folder, "run"), recipe, threads=torch.get_num_threads(), kind=kind), kind):
            pass
    return loss_at_end(last[-1], recipe)


def plain(recipe: Recipe) -> float:
    """The loss at the end of the loop."""
    import torch

    from engine.training.model import BETAS, SmallModel, parameters_of

    data, batch, n_ctx = random_text(recipe), recipe.batch, recipe.n_ctx
    torch.manual_seed(0)

    def get_batch():
        at = torch.randint(len(data) - n_ctx, (batch,))
        x = torch.stack([torch.from_numpy(data[i : i + n_ctx].astype(np.int64)) for i in at])
        y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + n_ctx].astype(np.int64)) for i in at])
        return x, y

    model = SmallModel(recipe)
    model.train()
    optimizer = torch.optim.AdamW(parameters_of(model), lr=recipe.rate, betas=BETAS, fused=True)
    x, y = get_batch()
    for _ in range(recipe.n_steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1), ignore_index=-1)
        x, y = get_batch()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_GRADIENT)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss_at_end(model, recipe)


def loss_at_end(model, recipe: Recipe) -> float:
    """Nats a token of random text that neither has seen: about ln(vocabulary) for both."""
    import torch

    rows = np.random.default_rng(1).integers(1, recipe.n_vocab, (8, recipe.n_ctx + 1))
    with torch.inference_mode():
        return float(model.loss(torch.from_numpy(rows)))
