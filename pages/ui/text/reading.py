"""One setting of the Text screen, `TextState`: a text, the model that it is compared with and the pruned one; its
losses and their jobs."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from engine.demo import Landmark
from engine.heads.attention import Head
from engine.heads.induction import InductionScores, induction
from engine.importance.orders import Orders, Pruning, orders_from, orders_of
from engine.importance.rules import Evidence
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Target
from engine.requests import MeasureLosses
from engine.texts.incontext import MIN_TOKENS
from engine.texts.passages import as_chat
from engine.texts.tokenloss import TokenLosses, token_losses
from engine.views.texts import SERIES
from pages.ui.downloads.origin import of_model
from pages.ui.page.runtime import jobs, session
from pages.ui.page.tables import mask_counts
from pages.ui.page.work import Work

T = TypeVar("T")
PATIENCE_S = 1.0  # after this the progress is shown; until then the screen stays unchanged
FULL, PRUNED = "full", "pruned"  # which of the two models
OLD = "The pruned model is being measured; the colors show the previous setting."
WAITING = "The pruned model is being measured."


@dataclass(frozen=True)
class Side:
    """A model that reads the text, under a mask."""

    target: Target
    mask: Mask

    @property
    def name(self) -> str:
        """Returns text such as "demo in int8 without 4 of 48 heads"."""
        lacks = mask_counts(self.target.shape, self.mask).replace(", ", " and ")
        return self.target.spec.in_words + (f" without {lacks}" if lacks else "")


@dataclass(frozen=True)
class TextState:
    """One setting of all controls.

    `name`, `text`: the text
    `landmarks`: places worth a look
    `named`: the field of a request that names the text
    `is_chat`: the text is a message of the user, in each model's chat template
    `data_dir`: folder of task data
    `full`: the model that the pruned one is compared with
    `whole`: the study's model before it is pruned
    `pruning`: of the study's model
    `known`: its induction scores, if they are measured
    `heads`: of which the attention is shown
    `shade`: what colors the tokens
    """

    name: str
    text: str
    landmarks: tuple[Landmark, ...]
    named: Mapping[str, Any]
    is_chat: bool
    data_dir: str | None
    full: Side
    whole: Side
    pruning: Pruning
    known: InductionScores | None
    heads: tuple[Head, ...]
    shade: str

    @property
    def models(self) -> tuple[Any, ...]:
        """Returns the text and the two models that read it."""
        return self.text, self.is_chat, self.full.target.spec, self.whole.target.spec

    @property
    def alone(self) -> "TextState":
        """Returns the setting without another model."""
        return replace(self, full=self.whole)

    @property
    def known_order(self) -> Orders | None:
        """Returns the orders if they need no measurement: they are random, or nothing is pruned by level."""
        if self.pruning.missing(Evidence()):
            return None
        return orders_from(self.whole.target.shape, self.pruning.ranking, Evidence())

    def pruned(self, orders: Orders) -> Side:
        """Returns the study's model with what these orders and the typed mask prune."""
        return replace(self.whole, mask=self.pruning.mask(orders))

    def losses(self, side: Side) -> Measurement[TokenLosses]:
        """Returns the measurement of the losses of the whole text by one side."""
        target, text = as_chat(side.target, self.text) if self.is_chat else (side.target, self.text)
        return token_losses(target, text, side.mask, is_chat=self.is_chat)

    def request(self, pruned: Side, **kwargs: Any) -> MeasureLosses:
        """Returns the equivalent request, which finds the same stored results."""
        of_full, of_pruned = self.full.target.spec, pruned.target.spec
        return MeasureLosses(
            **of_model(self.full.target), **self.named, chat=self.is_chat, mask=pruned.mask.text(),
            other_model=of_pruned.model if of_pruned.model != of_full.model else None,
            other_precision=of_pruned.precision if of_pruned.precision != of_full.precision else None,
            out="losses.csv", **kwargs,
        )  # fmt: skip

    def in_words(self, pruned: Side, n_tokens: int) -> str:
        """Describes which models read which text."""
        sides = dict.fromkeys((self.full.name, pruned.name))
        return " · ".join([*sides, f"{self.name}{' as a chat' * self.is_chat}, {n_tokens:,} tokens"])


@dataclass(frozen=True)
class Read:
    """A text that both models have read, and one of its tokens, by its index. Without a `pruned` model nothing is
    pruned."""

    x: TextState
    side: Side  # the study's model with what is pruned
    full: TokenLosses
    pruned: TokenLosses | None
    token: int | None  # the locked one, else the one that is shown first
    is_locked: bool

    @property
    def masks(self) -> dict[str, Mask]:
        """Returns the masks of the study's model, by series."""
        masks = {SERIES["full"]: Mask.full(self.side.target.shape)}
        return masks if self.side.mask.is_full else masks | {SERIES["masked"]: self.side.mask}

    @property
    def has_gain(self) -> bool:
        """Returns whether the text is long enough for an in-context gain."""
        return self.full.n_total >= MIN_TOKENS and not self.x.is_chat


class TextRun:
    """One run of the page: `waiting` holds, by slot, the work that continues after it."""

    def __init__(self) -> None:
        self.since_s = time.monotonic()
        self.waiting: dict[str, Work[Any]] = {}

    def pruned(self, x: TextState) -> Side | None:
        """Returns the pruned model once its order is known, and starts what is missing of the full one's losses, and of
        the induction scores."""
        _, orders = self.losses(x, FULL, x.full), self.order(x)
        if x.known is None:
            work = Work("text induction", "Induction scores", induction(x.whole.target), 1, while_seen=True)
            work.start()
            self.waiting[work.slot] = work  # however soon it ends, this run has drawn the list of heads without it
        return None if orders is None else x.pruned(orders)

    def order(self, x: TextState) -> Orders | None:
        """Returns the pruning orders if they are available soon, else None."""
        wanted = orders_of(x.whole.target, x.pruning, x.data_dir)
        return x.known_order or self._started(Work("text order", "Ranking", wanted, while_seen=True))

    def losses(self, x: TextState, which: str, side: Side) -> TokenLosses | None:
        """Returns the losses of the whole text, stored or measured soon; else None, and they are being measured."""
        found, work = x.losses(side).stored(session()), losses_work(x, which, side)
        if found is None:
            return self._started(work)
        jobs().drop(work.slot)
        return found

    def progress(self) -> None:
        """Draws the progress of the work that continues."""
        for work in self.waiting.values():
            work.line()

    def _started(self, work: Work[T]) -> T | None:
        value = work.value(max(0.0, self.since_s + PATIENCE_S - time.monotonic()))
        if value is None:
            self.waiting[work.slot] = work
        return value


def losses_work(x: TextState, which: str, side: Side) -> Work[TokenLosses]:
    """Returns the work that measures the losses of the text by the full or by the pruned model."""
    return Work(f"text {which}", f"Losses of the {which} model", x.losses(side), while_seen=True)


@dataclass(frozen=True)
class ReadSoFar:
    """The losses of both models so far. `pruned` is None while nothing is pruned, and before anything of it is known;
    `of`: the model that it is, of the setting before until there is anything of this one, which the `note` says."""

    full: TokenLosses | None
    pruned: TokenLosses | None
    of: Side | None
    note: str

    def is_whole(self, side: Side | None) -> bool:
        """Returns whether both models have read the text, the pruned one being `side`."""
        read = [each for each in (self.full, self.pruned) if each is not None]
        is_read = len(read) > 0 and all(len(each) == each.n_total for each in read)
        return is_read and side is not None and self.of == side and not self.note


def read_so_far(x: TextState, side: Side | None, before: Side | None) -> ReadSoFar:
    """Returns what the models have read; `side`: the pruned one (None: not known yet), and the one `before` it."""
    full = _read(x, FULL, x.full)
    if side == x.full or full is None:
        return ReadSoFar(full, None, side, "")
    pruned = None if side is None else _read(x, PRUNED, side)
    if pruned is not None:
        return ReadSoFar(full, pruned, side, "")
    is_old = before is not None and before.target == x.whole.target and before != x.full
    old = x.losses(before).stored(session()) if before is not None and is_old else None
    return ReadSoFar(full, old, before, OLD) if old is not None else ReadSoFar(full, None, None, WAITING)


def _read(x: TextState, which: str, side: Side) -> TokenLosses | None:
    return x.losses(side).stored(session()) or losses_work(x, which, side).job_value
