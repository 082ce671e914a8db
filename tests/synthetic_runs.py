"""Trajectories made by hand, with a phase change at a known place: what the Training screen is tested on."""

import numpy as np

from engine.heads.induction import SCORES
from engine.training.recipe import Recipe
from engine.training.trajectory import PassageTrajectory, Trajectory

PIECES = tuple(
    "Mrs| Pot|ter| and| the| Dur|sleys|.| Mrs| Pot|ter| saw| the| Dur|sleys|.|\n|The| Dur|sleys| slept|.".split("|")
)


def trajectory(name, changes_at=None, n=20, n_texts=60, **recipe):
    """One run of `n` snapshots, a million tokens and more; its in-context score falls by 0.3 nats around `changes_at`
    tokens (None: never), when the last layer's head 1 comes to match prefixes and layer 0's head 0 looks back."""
    made = Recipe(**{"n_layers": 2, "n_heads": 4, "tokens": 4_000_000, "n_ctx": 128, "batch": 8, **recipe})
    drawn = np.random.default_rng(made.seed + 10 * made.n_layers)
    tokens = np.linspace(0, made.tokens, n).astype(np.float32)
    formed = np.zeros(n) if changes_at is None else 1 / (1 + np.exp(-(tokens - changes_at) / 1e5))
    learnt = 1 - np.exp(-tokens / 6e5)  # what comes by itself: letters and pairs
    index = np.arange(1, made.n_ctx + 1)
    by_index = 6.2 - 2 * learnt[:, None] - 0.1 * learnt[:, None] * np.log(np.minimum(index, 20))
    by_index = by_index - 0.1 * formed[:, None] * np.log(index)
    early, late = drawn.normal(0, 1, (2, n_texts))
    token_losses = 4 + learnt[:, None] * early + formed[:, None] * late + drawn.normal(0, 0.02, (n, n_texts))
    shape = (n, made.n_layers, made.n_heads)
    heads = {score: np.abs(drawn.normal(0, 0.02, shape)) for score in SCORES}
    heads["prefix_matching"][:, -1, 1] += 0.9 * formed
    heads["previous_token"][:, 0, 0] += 0.9 * formed
    heads["qk_trace"][:, 0] = np.nan
    ablated = np.arange(1, n, 3)
    ablated_icl = drawn.normal(-0.005, 0.002, (len(ablated), *shape[1:]))
    ablated_icl[:, -1, 1] += 0.3 * formed[ablated]
    ablated_losses = drawn.normal(0, 0.01, (len(ablated), *shape[1:], n_texts))
    ablated_losses[:, -1, 1] -= 0.8 * formed[ablated, None] * late
    again = np.array([piece in PIECES[:place] for place, piece in enumerate(PIECES)])
    passage = 5 - 1.5 * learnt[:, None] + drawn.normal(0, 0.3, len(PIECES)) - formed[:, None] * again
    passage[:, 0] = np.nan
    return Trajectory(
        name=name, label=made.in_words, recipe=made.as_json(),
        about={"text": "made by hand", "text_digest": "by hand", "early": 13, "late": 125, "around": 0,
               "n_ctx": made.n_ctx, "n_texts": n_texts, "same_weights": [], "seconds": 1.0},
        steps=(tokens / made.step_tokens).astype(np.int64), tokens=tokens, loss=by_index.mean(1),
        icl=-0.05 * learnt - 0.3 * formed + drawn.normal(0, 0.002, n), first_copy=6.2 + 0 * learnt,
        second_copy=6.2 - 4 * formed, by_index=by_index, token_losses=token_losses, heads=heads,
        passages={"By hand": PassageTrajectory(PIECES, passage)}, ablated=ablated,
        ablated_icl=ablated_icl, ablated_losses=ablated_losses,
    )  # fmt: skip


def runs(**more):
    """Three of them: one that never changes, and two that do, one sooner."""
    return [
        trajectory("1-layer", None, n_layers=1, **more),
        trajectory("1-layer-smeared", 1.2e6, n_layers=1, smeared=True, **more),
        trajectory("2-layers", 2.0e6, **more),
    ]
