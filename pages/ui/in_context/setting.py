"""The settings of the In context screen: `InContextControls`, their jobs for the worker, and their requests.

No streamlit here: the generators run in the worker thread, and everything can be tested as plain functions.
"""

import hashlib
import json
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from engine.composed import ComposedRun, composed
from engine.heads.ablation import KINDS, Ablating, HeadAblations, head_ablations
from engine.importance.rankings_of import Pruning, orders_of
from engine.importance.rules import Evidence
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Target
from engine.progress import Progress, driven
from engine.requests import AttributeHeads, MeasureLosses, Request
from engine.texts.incontext import MIN_TOKENS
from engine.texts.passages import Source
from engine.texts.tokenloss import losses_of_texts
from pages.ui.downloads.origin import Origin, about, of_model, ranking_part
from pages.ui.page.tables import mask_counts, mask_in_words

OPERATIONS_PER_S = 1e11  # of a processor with few cores
Losses = tuple[np.ndarray, ...]  # per-token losses (n,) in nats, one array per text


@dataclass(frozen=True)
class LossesSoFar:
    """Losses of the texts so far, of the full and of the pruned model; `mask` is None until it is known."""

    full: Losses = ()
    pruned: Losses = ()
    mask: Mask | None = None

    @property
    def in_both(self) -> tuple[Losses, Losses]:
        """Returns the losses of the texts that both have read."""
        n = min(len(self.full), len(self.pruned))
        return self.full[:n], self.pruned[:n]

    @property
    def alike(self) -> "LossesSoFar":
        """Returns both models' losses of the same texts, as soon as the pruned one has read any."""
        is_compared = self.pruned and self.mask is not None and not self.mask.is_full
        return replace(self, full=self.in_both[0]) if is_compared else self


@dataclass(frozen=True)
class InContextControls:
    """One setting of all controls. `texts` come from `source`."""

    target: Target
    data_dir: str | None
    source: Source
    texts: tuple[str, ...]
    pruning: Pruning

    @property
    def base_key(self) -> str:
        """Returns a key that changes with the model, its precision and the texts; not with the pruning."""
        digest = hashlib.blake2b(json.dumps(self.texts).encode(), digest_size=16).hexdigest()
        return f"{self.target} {digest}"

    @property
    def key(self) -> str:
        """Returns a key that changes with anything that changes the measurement."""
        return f"{self.base_key} {self.pruning} {self.pruning.task} {self.data_dir}"

    def losses(self, mask: Mask, label: str = "") -> Measurement[Losses]:
        """Returns the measurement of the losses of every text under a mask."""
        return losses_of_texts(self.target, self.texts, mask, label)


def is_long(x: InContextControls, takes_s: float | None, most_s: float) -> bool:
    """Returns whether the losses take more than `most_s` seconds by their forecast, or if there is none yet, by the
    model's size: two operations for each weight and token, at a slow processor's rate."""
    if takes_s is None:
        takes_s = 2 * x.target.identity.n_params * MIN_TOKENS * len(x.texts) / OPERATIONS_PER_S
    return takes_s > most_s


def fewer_texts(x: InContextControls, takes_s: float | None, most_s: float) -> int:
    """Returns how many of the texts are offered where all take long: those read within `most_s` seconds, or the fewest
    that have an interval; 0 if none is left."""
    least, *more = [n for n in (3, 6, 12) if n < len(x.texts)] or [0]
    for n in reversed(more):
        some_s = None if takes_s is None else takes_s * n / len(x.texts)
        if not is_long(replace(x, texts=x.texts[:n]), some_s, most_s):
            return n
    return least


def losses(x: InContextControls) -> Measurement[LossesSoFar]:
    """Returns the losses of every text by the full model, then by the pruned one, which may need an order first."""
    full, n = x.losses(Mask.full(x.target.shape), "Full model, texts"), len(x.texts)
    orders = orders_of(x.target, x.pruning, x.data_dir)

    def body(run: ComposedRun) -> Generator[Progress[LossesSoFar], None, LossesSoFar]:
        nothing = LossesSoFar(mask=x.pruning.known_mask(x.target.shape, Evidence()))
        each = yield from driven(
            run.steps(full, n), lambda step: step.map(lambda losses: replace(nothing, full=losses))
        )
        found = replace(nothing, full=each.value or ())
        yield run.so_far(found)
        known = yield from run.part(orders, 0)
        if known is None:
            return found
        mask = x.pruning.mask(known)
        pruned = run.steps(x.losses(mask, "Pruned model, texts"), n)
        found = replace(found, mask=mask)
        each = yield from driven(pruned, lambda step: step.map(lambda losses: replace(found, pruned=losses)))
        return replace(found, pruned=each.value or ())

    return composed(x.target, (x.key, "losses"), body, 2 * n)


def ablations(x: InContextControls, fill: str) -> Measurement[dict[str, HeadAblations]]:
    """Returns the effect of each head of the full model, by both kinds of ablation: {kind: HeadAblations} of the texts
    finished so far."""
    full, n_passes = Mask.full(x.target.shape), x.target.shape.n_heads_total + 1

    def body(run: ComposedRun) -> Generator[Progress[dict[str, HeadAblations]], None, dict[str, HeadAblations]]:
        finished = {kind: HeadAblations((), ()) for kind in KINDS}
        for number, text in enumerate(x.texts):
            of_text = {}
            for kind in KINDS:
                part = run.part(head_ablations(x.target, [text], Ablating(full, kind, fill), x.texts), n_passes)
                one = yield from driven(part, partial(_with_label, f"Text {number + 1} of {len(x.texts)}, {kind}"))
                if one is not None:
                    of_text[kind] = one
            if not run.missing:
                finished = {kind: before + of_text[kind] for kind, before in finished.items()}
                yield run.so_far(finished)
        return finished

    return composed(x.target, (x.base_key, "ablations", fill), body, 2 * len(x.texts) * n_passes)


def origin(x: InContextControls, mask: Mask | None, kind: str, fill: str, around: int) -> Origin:
    """Returns the requests and the records of the results shown."""
    full = Mask.full(x.target.shape)
    measurements: dict[str, Measurement[Any]] = {"Full model": x.losses(full)}
    if mask is not None and not mask.is_full:
        measurements["Pruned model"] = x.losses(mask)
    measurements |= {"Heads ablated": ablations(x, fill), **ranking_part(x.target, x.pruning, x.data_dir)}
    of = about(x.target, x.source.name, f"{len(x.texts)} texts of 512 tokens", mask_in_words(x.target.shape, mask))
    pruned = "" if mask is None or mask.is_full else f", {mask_counts(x.target.shape, mask)} pruned"
    return Origin("In context", requests(x, mask, (kind, fill), around), measurements, of, x.source.name + pruned)


def requests(x: InContextControls, mask: Mask | None, how: tuple[str, str], around: int) -> list[Request]:
    """Returns the equivalent requests, which find the same stored results; `how` heads are ablated: (kind, output of an
    ablated head)."""
    source = {"task": ("from_task", x.source.name), "passage": ("passage", x.source.name), "text": ("text", "text.txt")}
    asked = dict[str, Any](of_model(x.target) | dict([source[x.source.kind]]))
    asked |= {"texts": x.source.n_texts, "average_tokens": around}
    asked["task_data"] = x.data_dir if x.source.kind == "task" else None
    kind, fill = how
    pruned = "" if mask is None else mask.text()
    return [
        MeasureLosses(**asked, mask=pruned, out="losses.csv"),
        AttributeHeads(**asked, kind=kind, fill=fill, out="attribution.csv"),
    ]


def _with_label(words: str, step: Progress[Any]) -> Progress[Any]:
    return replace(step, message=f"{words}, {step.message or 'passes'}")
