"""What the In context screen measures: a `Setting` of all controls, its jobs for the worker, and its commands.

No streamlit here: the generators run in the worker thread, and everything can be tested as plain functions.
"""

import hashlib
import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.heads.ablation import KINDS, Attribution, attribute, recall_attribution
from engine.importance.rankings_of import Ranking
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import LoadSpec, Models
from engine.models.masks import Mask
from engine.questions.requests import TaskSpec
from engine.texts.incontext import Source
from engine.texts.tokenloss import token_losses
from pages.ui.prune.experiment import RANKING_QUESTIONS, ordered
from pages.ui.shared.closing import command_line

SHOTS = 5  # solved examples in front of the questions that importance is measured on: as the Prune screen begins
Losses = tuple[np.ndarray, ...]  # per-token losses (n,) in nats, one array a text


@dataclass(frozen=True)
class Measured:
    """Losses of the texts so far, of the full and of the pruned model; `mask` is None until it is known."""

    full: Losses = ()
    pruned: Losses = ()
    mask: Mask | None = None

    @property
    def in_both(self) -> tuple[Losses, Losses]:
        """The losses of the texts that both have read."""
        n = min(len(self.full), len(self.pruned))
        return self.full[:n], self.pruned[:n]


@dataclass(frozen=True)
class Setting:
    """One setting of all controls. `texts` come from `source`; `task` is what importance is measured on.

    `typed` is the mask of the text field, pruned on top of the two levels.
    """

    spec: LoadSpec
    bos: bool | None
    data_dir: str | None
    identity: Identity
    source: Source
    texts: tuple[str, ...]
    task: TaskSpec
    ranking: str
    heads_permille: int
    ffns_permille: int
    typed: Mask

    @property
    def ranked(self) -> Ranking:
        return Ranking(self.ranking, n_questions=RANKING_QUESTIONS)

    @property
    def base_key(self) -> str:
        """Changes with the model, its precision and the texts; not with what is pruned."""
        digest = hashlib.blake2b(json.dumps(self.texts).encode(), digest_size=16).hexdigest()
        return f"{self.spec} {self.identity.digest} bos={self.bos} {digest}"

    @property
    def key(self) -> str:
        """Changes with anything that changes what is measured."""
        levels = f"{self.ranking} {self.heads_permille} {self.ffns_permille} {self.task} {self.data_dir}"
        return f"{self.base_key} {levels} {self.typed.key()}"


def measure(x: Setting, models: Models, store: Any) -> Iterator[Progress]:
    """Job: every text by the full model, then the ranking if it is needed, then every text by the pruned model; its
    value is a `Measured`. What is stored is read, text by text."""
    found = Measured()
    for number, text in enumerate(x.texts):
        losses = yield from _losses(x, text, Mask.full(x.identity.shape), number, "Full model", models, store)
        found = replace(found, full=(*found.full, losses))
        yield Progress(number + 1, len(x.texts), found, "Full model, texts")
    orders = yield from ordered(x, models, store)
    mask = orders.mask(x.identity, x.heads_permille, x.ffns_permille) | x.typed
    found = replace(found, mask=mask)
    if mask.is_full:
        yield Progress(len(x.texts), len(x.texts), replace(found, pruned=found.full))
        return
    for number, text in enumerate(x.texts):
        losses = yield from _losses(x, text, mask, number, "Pruned model", models, store)
        found = replace(found, pruned=(*found.pruned, losses))
        yield Progress(number + 1, len(x.texts), found, "Pruned model, texts")


def attributions(x: Setting, fill: str, compute: bool, models: Models, store: Any) -> Iterator[Progress]:
    """Job: what each head of the full model does, by both kinds of ablation; its value is {kind: Attribution} over the
    texts finished so far. Of what is stored alone where `compute` is False: then it ends at the first missing text."""
    full, each = Mask.full(x.identity.shape), x.identity.shape.n_heads_total + 1
    total, finished = 2 * len(x.texts) * each, {kind: Attribution((), ()) for kind in KINDS}
    for number, text in enumerate(x.texts):
        for at, kind in enumerate(KINDS):
            one = recall_attribution(x.identity, x.spec, [text], full, kind, fill, x.bos, store)
            if one is None and not compute:
                return
            if one is None:
                done = (2 * number + at) * each
                for step in attribute(models, x.spec, [text], full, kind, fill, x.bos, store):
                    one = step.value
                    words = f"Text {number + 1} of {len(x.texts)}, {kind}, {step.message or 'passes'}"
                    yield Progress(done + step.done, total, message=words)
            assert one is not None
            held = finished[kind]
            finished = {**finished, kind: Attribution((*held.base, *one.base), (*held.ablated, *one.ablated))}
        yield Progress(2 * (number + 1) * each, total, finished)


def commands(x: Setting, mask: Mask | None, kind: str, fill: str) -> str:
    """The shell commands that measure the same and find what is stored here, one a line."""
    words: list[str | int] = {
        "task": ["--solved", x.source.name, "--texts", x.source.n_texts],
        "passage": ["--passage", x.source.name, "--texts", x.source.n_texts],
        "text": ["--text", "text.txt", "--texts", x.source.n_texts],
    }[x.source.kind]
    pruned = [] if mask is None or mask.is_full else ["--mask", mask.text()]
    data_dir = x.data_dir if x.source.kind == "task" else None
    lines: Sequence[tuple[str, list[str | int]]] = [
        ("losses", [*words, *pruned, "--out", "losses.csv"]),
        ("attribute", [*words, "--kind", kind, "--fill", fill, "--out", "attribution.csv"]),
    ]
    return "\n".join(command_line(name, x.spec, x.bos, data_dir, arguments) for name, arguments in lines)


def _losses(
    x: Setting, text: str, mask: Mask, number: int, title: str, models: Models, store: Any
) -> Generator[Progress, None, np.ndarray]:
    found = None
    for step in token_losses(models, x.spec, text, mask, x.bos, store):
        found = step.value if step.value is not None else found
        yield Progress(number, len(x.texts), message=step.message or f"{title}, texts")
    assert found is not None
    return found.loss_nats
