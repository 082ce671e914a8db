"""Small models that learn: a run, and what was learned at every snapshot."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from engine.training.phase_change import Window
from engine.training.trajectory import Trajectory
from engine.views import kit
from engine.views.view import Column, Part, View
from engine.views.words import counted, number, percent

TOKENS = Column("Training tokens", ",d")
LOG = {
    "tokens": TOKENS,
    "loss": Column("Loss, nats a token", ".3f"),
    "icl": Column("In-context score, nats", "+.3f"),
    "first_copy": Column("First copy, nats", ".2f"),
    "second_copy": Column("Second copy, nats", ".2f"),
}
SNAPSHOTS = {
    "step": Column("Step", ",d"),
    "tokens": TOKENS,
    "icl": LOG["icl"],
    "loss": LOG["loss"],
    "prefix_matching": Column("Best prefix matching, share", ".2f"),
}


def run_view(log: Sequence[Mapping[str, Any]], about: str, best: Mapping[str, float], missing: Sequence[int]) -> View:
    """What a run has learned by the lines of its log; `best`: the highest scores of its heads by name."""
    notes = [about, *([f"Deleted since: {', '.join(f'step{step}' for step in missing)}."] if missing else [])]
    if not log:
        return View("", notes=notes)
    last = log[-1]
    heads = "".join(f", the best {name.replace('_', ' ')} {number(score)}" for name, score in best.items())
    finding = (
        f"**The loss is {number(last['loss'], 3)} nats a token after {last['tokens']:,} tokens**, and of repeated "
        f"tokens {number(last['second_copy'])} (first copy {number(last['first_copy'])}); the in-context score is "
        f"{number(last['icl'], 3, sign=True)}{heads}."
    )
    rows = [{name: line.get(name) for name in ("step", *LOG)} for line in log]
    return View(finding, [Part("Loss in training", rows, LOG, partial(kit.curves, x="tokens", y="loss"))], notes)


def trajectory_view(found: Trajectory, where: Window | None) -> View:
    """When a model learned in context (`where`: the phase change), and the numbers of each snapshot."""
    about, best = found.about, found.best("prefix_matching")
    values = {
        "step": found.steps,
        "tokens": found.tokens,
        "icl": found.icl,
        "loss": found.loss,
        "prefix_matching": best,
    }
    rows = [{name: array[at].item() for name, array in values.items()} for at in range(len(found.steps))]
    parts = []
    for name in ("icl", "loss", "prefix_matching"):
        if np.isfinite(values[name]).any():
            title = f"{SNAPSHOTS[name].title.partition(',')[0]} in training"
            parts.append(Part(title, rows, SNAPSHOTS, partial(kit.curves, x="tokens", y=name)))
    if where is not None:
        fall = number(float(found.icl[where.first] - found.icl[where.last]))
        share = "" if math.isnan(where.share) else f", {percent(where.share, 0)} of its whole change"
        finding = (
            f"**Phase change from {where.start:,.0f} to {where.end:,.0f} tokens**: there the in-context score falls "
            f"by {fall} nats{share}."
        )
    elif np.isfinite(found.icl).any():
        finding = "**There is no phase change**: the in-context score never falls steeply."
    else:
        finding = "**The in-context score was not measured**, which a phase change is seen by."
    around = f", ± {counted(about['around'], 'token')}" if about["around"] else ""
    notes = [
        f"{found.label}: {counted(len(rows), 'snapshot')} to {found.tokens[-1]:,} tokens, on "
        f"{counted(about['n_texts'], 'text')} of {about['n_ctx']} tokens ({about['text']}).",
        f"In-context score: token {about['late']} less {about['early']}{around}.",
        *(f"Steps {a} and {b} have the same weights." for a, b in about["same_weights"]),
    ]
    return View(finding, parts, notes)
