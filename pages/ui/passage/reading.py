"""What the Passage screen measures: a `Reading` of one text by A and by B, its jobs for the worker, what is stored.

No streamlit here: the generators run in the worker thread, and everything can be tested as plain functions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from engine.demo import Landmark
from engine.importance.rankings_of import NEEDS, Evidence, Orders, Ranking, compute_orders, orders_from
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import LoadSpec, Models
from engine.models.masks import Mask
from engine.questions.requests import TaskSpec
from engine.texts.passages import text_digest
from engine.texts.tokenloss import TokenLosses, recall_token_losses, token_losses
from pages.ui.prune.experiment import RANKING_QUESTIONS
from pages.ui.shared.closing import command_line

SHOTS = 5  # solved examples in front of the questions that importance is measured on: as the Prune screen begins


@dataclass(frozen=True)
class Side:
    """A model as it reads the text: which one, in which precision, how much of it."""

    spec: LoadSpec
    identity: Identity
    mask: Mask

    def key(self, text: str, bos: bool | None) -> str:
        """Changes with anything that changes a loss."""
        return f"{self.spec} {self.identity.digest} bos={bos} {self.mask.key()} {text_digest(text)}"


@dataclass(frozen=True)
class Reading:
    """One setting of all controls. `a` is what the text is compared with, `whole` B before anything is pruned.

    `typed` is the mask of the text field, pruned on top of the two levels. `task` is what importance is measured on.
    `arguments` name the text on the command line.
    """

    name: str
    text: str
    landmarks: tuple[Landmark, ...]
    arguments: tuple[str, ...]
    bos: bool | None
    data_dir: str | None
    a: Side
    whole: Side
    task: TaskSpec
    ranking: str
    heads_permille: int
    ffns_permille: int
    typed: Mask

    @property
    def ranked(self) -> Ranking:
        return Ranking(self.ranking, n_questions=RANKING_QUESTIONS)

    @property
    def order_key(self) -> str:
        """Changes with anything that changes the order in which components go: not with how many go."""
        task = f"{self.task} {self.data_dir}" if NEEDS[self.ranking] else ""
        return f"{self.whole.spec} {self.whole.identity.digest} bos={self.bos} {self.ranking} {self.ffns_too} {task}"

    @property
    def ffns_too(self) -> bool:
        return self.ffns_permille > 0

    @property
    def known_order(self) -> Orders | None:
        """The orders where nothing needs to be measured for them: they are random, or nothing is pruned by level."""
        if NEEDS[self.ranking] and (self.heads_permille or self.ffns_permille):
            return None
        return orders_from(self.whole.identity.shape, self.ranked, Evidence())

    def b(self, orders: Orders) -> Side:
        """B: the two levels of these orders and the typed mask pruned."""
        levels = orders.mask(self.whole.identity, self.heads_permille, self.ffns_permille)
        return replace(self.whole, mask=levels | self.typed)


def measure(x: Reading, side: Side, title: str, models: Models, store: Any) -> Iterator[Progress]:
    """Job: the losses of the whole text by one side; its value is the `TokenLosses` so far."""
    for step in token_losses(models, side.spec, x.text, side.mask, x.bos, store):
        yield replace(step, message=step.message or f"{title}, tokens")


def measure_order(x: Reading, models: Models, store: Any) -> Iterator[Progress]:
    """Job: the scores that the ranking needs; its value is the `Orders`."""
    task, data_dir = x.task, x.data_dir
    yield from compute_orders(models, x.whole.spec, task, x.ranked, x.bos, data_dir, store, ffns_too=x.ffns_too)


def recall(x: Reading, side: Side, store: Any) -> TokenLosses | None:
    """The losses of the whole text by one side where they are stored; computes nothing."""
    return recall_token_losses(side.identity, side.spec, x.text, side.mask, x.bos, store)


def command(x: Reading, b: Side) -> str:
    """The shell command that measures the same and finds what is stored here."""
    words = list(x.arguments)
    for option, mask in (("--mask-a", x.a.mask), ("--mask", b.mask)):
        words += [] if mask.is_full else [option, mask.text()]
    words += ["--other-model", b.spec.model] if b.spec.model != x.a.spec.model else []
    words += ["--other-precision", b.spec.precision] if b.spec.precision != x.a.spec.precision else []
    return command_line("losses", x.a.spec, x.bos, None, [*words, "--out", "losses.csv"])
