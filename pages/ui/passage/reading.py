"""The settings of the Passage screen, a `PassageControls` of one text by A and by B; its losses, jobs and origin."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.demo import Landmark
from engine.importance.rankings_of import Orders, Pruning, orders_from, orders_of
from engine.importance.rules import Evidence
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Target
from engine.receipts import Measurements
from engine.requests import MeasureLosses
from engine.texts.passages import as_chat
from engine.texts.tokenloss import TokenLosses, token_losses
from pages.ui.downloads.origin import of_model, ranking_part
from pages.ui.page.runtime import jobs, session
from pages.ui.page.streamlit_internals import stop_if_outdated
from pages.ui.page.work import Work

PATIENCE_S = 1.0  # after this the progress is shown; until then the screen stays unchanged
SLICE_S = 0.05


@dataclass(frozen=True)
class PassageModel:
    """A model that reads the text: its target and its mask."""

    target: Target
    mask: Mask

    @property
    def name(self) -> str:
        """Returns text such as "demo in int8 without 4 heads"."""
        counts = {"head": self.mask.n_heads_pruned, "FFN": self.mask.n_ffns_pruned}
        lacks = " and ".join(f"{n} {noun}{'s' * (n > 1)}" for noun, n in counts.items() if n)
        return self.target.spec.in_words + (f" without {lacks}" if lacks else "")


@dataclass(frozen=True)
class PassageControls:
    """One setting of all controls."""

    name: str  # of the text
    text: str  # its content
    landmarks: tuple[Landmark, ...]  # places worth a look
    named: Mapping[str, Any]  # the field of a request that names the text
    is_chat: bool  # it is a message of the user, with each model's chat template
    data_dir: str | None  # folder of task data
    a: PassageModel  # the model compared with
    whole: PassageModel  # B before pruning
    pruning: Pruning  # of B

    @property
    def known_order(self) -> Orders | None:
        """Returns the orders if they need no measurement: they are random, or nothing is pruned by level."""
        if self.pruning.missing(Evidence()):
            return None
        return orders_from(self.whole.target.shape, self.pruning.ranking, Evidence())

    def b(self, orders: Orders) -> PassageModel:
        """Returns B: the two levels of these orders and the typed mask pruned."""
        return replace(self.whole, mask=self.pruning.mask(orders))

    def losses(self, side: PassageModel) -> Measurement[TokenLosses]:
        """Returns the measurement of the losses of the whole text by one side."""
        target, text = as_chat(side.target, self.text) if self.is_chat else (side.target, self.text)
        return token_losses(target, text, side.mask, is_chat=self.is_chat)


def measurements(x: PassageControls, b: PassageModel) -> Measurements:
    """Returns the measurements shown: both sides, and the scores that B is ranked by."""
    sides = {"A": x.a, "B": b} if b != x.a else {"A": x.a}
    found = {name: x.losses(side) for name, side in sides.items()}
    return {**found, **ranking_part(b.target, x.pruning, x.data_dir)}


def in_words(x: PassageControls, b: PassageModel, n_tokens: int) -> str:
    """Describes which models read which text, and what they lack."""
    sides = []
    for name, side in (("A", x.a), ("B", b)):
        lacks = "" if side.mask.is_full else f", pruned: {side.mask.text()}"
        sides.append(f"{name} {side.target.identity.name} in {side.target.spec.precision}{lacks}")
    return " · ".join([*sides, f"{x.name}{' as a chat' * x.is_chat}, {n_tokens:,} tokens"])


def request(x: PassageControls, b: PassageModel) -> MeasureLosses:
    """Returns the equivalent request, which finds the same stored results."""
    of_a, of_b = x.a.target.spec, b.target.spec
    return MeasureLosses(
        **of_model(x.a.target), **x.named, chat=x.is_chat, base_mask=x.a.mask.text(), mask=b.mask.text(),
        other_model=of_b.model if of_b.model != of_a.model else None,
        other_precision=of_b.precision if of_b.precision != of_a.precision else None, out="losses.csv",
    )  # fmt: skip


class PassageRun:
    """One run of the page: `waiting` holds, by slot, the work that continues after it."""

    def __init__(self) -> None:
        self.since_s = time.monotonic()
        self.waiting: dict[str, Work[Any]] = {}

    def order(self, x: PassageControls) -> Orders | None:
        """Returns the pruning orders if they are available soon, else None."""
        wanted = orders_of(x.whole.target, x.pruning, x.data_dir)
        return x.known_order or self._started(Work("passage order", "Ranking", wanted, while_seen=True))

    def losses(self, x: PassageControls, which: str, side: PassageModel) -> TokenLosses | None:
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

    def _started(self, work: Work[Any]) -> Any:
        work.start()
        while True:
            jobs().join(work.slot, SLICE_S)
            if (job := work.now()) is not None and job.state == "done":
                return job.value
            if not work.under_way or time.monotonic() > self.since_s + PATIENCE_S:
                self.waiting[work.slot] = work
                return None
            stop_if_outdated()  # for example when a slider has moved meanwhile


def losses_work(x: PassageControls, which: str, side: PassageModel) -> Work[TokenLosses]:
    """Returns the work that measures the losses of the text by A (`which` a) or by B."""
    name = which.upper()
    return Work(f"passage {name}", f"Losses of {name}", x.losses(side), while_seen=True)


def so_far(x: PassageControls, which: str, side: PassageModel | None) -> TokenLosses | None:
    """Returns the losses of this side so far; None if there are none."""
    return losses_work(x, which, side).found if side is not None else None
