"""What the In context screen measures: a `Setting` of all controls, its jobs for the worker, and its commands.

No streamlit here: the generators run in the worker thread, and everything can be tested as plain functions.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.heads.ablation import KINDS, Ablating, HeadAblations, ablate_heads, recall_ablations
from engine.importance.rankings_of import Pruning, orders_of
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.rates import seconds_for
from engine.models.subject import Lab, Subject
from engine.progress import Progress, last_value
from engine.texts.sources import Source
from engine.texts.tokenloss import losses_of_texts
from pages.ui.shared.commands import command_line
from pages.ui.shared.origin import Origin, about, ranking_reads
from pages.ui.shared.python_code import of_context
from pages.ui.shared.tables import mask_in_words

Losses = tuple[np.ndarray, ...]  # per-token losses (n,) in nats, one array a text


@dataclass(frozen=True)
class LossesSoFar:
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
    """One setting of all controls. `texts` come from `source`."""

    subject: Subject
    data_dir: str | None
    source: Source
    texts: tuple[str, ...]
    pruning: Pruning

    @property
    def base_key(self) -> str:
        """Changes with the model, its precision and the texts; not with what is pruned."""
        digest = hashlib.blake2b(json.dumps(self.texts).encode(), digest_size=16).hexdigest()
        return f"{self.subject} {digest}"

    @property
    def key(self) -> str:
        """Changes with anything that changes what is measured."""
        return f"{self.base_key} {self.pruning} {self.pruning.task} {self.data_dir}"

    def losses(self, mask: Mask, label: str = "") -> Measurement[Losses]:
        """The losses of every text under a mask."""
        return losses_of_texts(self.subject, self.texts, mask, label)


def measure(x: Setting, lab: Lab) -> Iterator[Progress[LossesSoFar]]:
    """Job: every text by the full model, then the ranking if it is needed, then every text by the pruned model. What is
    stored is read, text by text."""
    found = LossesSoFar()
    for step in x.losses(Mask.full(x.subject.shape), "Full model, texts").map(LossesSoFar).run(lab):
        found = step.value or found
        yield step
    orders = yield from last_value(orders_of(x.subject, x.pruning, x.data_dir).run(lab))
    mask = x.pruning.mask(orders)
    pruned = x.losses(mask, "Pruned model, texts")
    yield from pruned.map(lambda losses: replace(found, pruned=losses, mask=mask)).run(lab)


def ablations(x: Setting, fill: str, lab: Lab, compute: bool = True) -> Iterator[Progress[dict[str, HeadAblations]]]:
    """Job: what each head of the full model does, by both kinds of ablation; its value is {kind: HeadAblations} over
    the texts finished so far. Of what is stored alone where `compute` is False: it ends at the first missing text."""
    full, each = Mask.full(x.subject.shape), x.subject.shape.n_heads_total + 1
    total, finished = 2 * len(x.texts) * each, {kind: HeadAblations((), ()) for kind in KINDS}
    for number, text in enumerate(x.texts):
        for at, kind in enumerate(KINDS):
            how = Ablating(full, kind, fill)
            one = recall_ablations(lab, x.subject, [text], how, x.texts)
            if one is None and not compute:
                return
            if one is None:
                done = (2 * number + at) * each
                for step in ablate_heads(lab, x.subject, [text], how, x.texts):
                    one = step.value or one
                    words = f"Text {number + 1} of {len(x.texts)}, {kind}, {step.message or 'passes'}"
                    yield replace(step.within(done, total), message=words)
            assert one is not None
            held = finished[kind]
            finished = {**finished, kind: HeadAblations((*held.base, *one.base), (*held.ablated, *one.ablated))}
        yield Progress(2 * (number + 1) * each, total, finished)


def ablations_s(x: Setting, lab: Lab) -> float | None:
    """Seconds that `ablations` takes here of all texts, None while that is not known."""
    read = 2 * (x.subject.shape.n_heads_total + 1) * sum(map(len, x.texts))
    return seconds_for(lab.store, x.subject, "forward", read)


def origin(x: Setting, mask: Mask | None, kind: str, fill: str, around: int) -> Origin:
    """The commands, the program and the records behind what is shown."""
    full = Mask.full(x.subject.shape)
    reads: dict[str, Callable[[Lab], object]] = {"Full model": x.losses(full).read}
    if mask is not None and not mask.is_full:
        reads["Pruned model"] = x.losses(mask).read
    reads |= {"Heads ablated": lambda lab: ablations(x, fill, lab, compute=False)}
    reads |= ranking_reads(x.subject, x.pruning, x.data_dir)
    program = of_context(x.subject, x.data_dir, x.source, mask or full, around)
    of = about(x.subject, x.source.name, f"{len(x.texts)} texts of 512 tokens", mask_in_words(x.subject.shape, mask))
    return Origin("In context", commands(x, mask, (kind, fill), around), program, reads, of)


def commands(x: Setting, mask: Mask | None, how: tuple[str, str], around: int) -> str:
    """The shell commands that measure the same and find what is stored here, one a line; `how` heads are ablated: the
    kind, and what one gives."""
    words: list[str | int] = {
        "task": ["--solved", x.source.name, "--texts", x.source.n_texts],
        "passage": ["--passage", x.source.name, "--texts", x.source.n_texts],
        "text": ["--text", "text.txt", "--texts", x.source.n_texts],
    }[x.source.kind]
    pruned = [] if mask is None or mask.is_full else ["--mask", mask.text()]
    words += ["--around", around] if around else []
    (kind, fill), data_dir = how, x.data_dir if x.source.kind == "task" else None
    lines: Sequence[tuple[str, list[str | int]]] = [
        ("losses", [*words, *pruned, "--out", "losses.csv"]),
        ("attribute", [*words, "--kind", kind, "--fill", fill, "--out", "attribution.csv"]),
    ]
    return "\n".join(command_line(name, x.subject, data_dir, arguments) for name, arguments in lines)
