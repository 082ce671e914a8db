"""What the Passage screen measures: a `PassageControls` of one text by A and by B, the losses and their origin.

No streamlit here: everything can be tested as plain functions.
"""

from dataclasses import dataclass, replace

from engine.demo import Landmark
from engine.importance.rankings_of import Evidence, Orders, Pruning, orders_from
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Target
from engine.receipts import Measurements
from engine.texts.tokenloss import TokenLosses, token_losses
from pages.ui.shared.commands import command_line
from pages.ui.shared.origin import ranking_part


@dataclass(frozen=True)
class PassageModel:
    """A model as it reads the text: which one, in which precision, how much of it."""

    target: Target
    mask: Mask


@dataclass(frozen=True)
class PassageControls:
    """One setting of all controls. `a` is what the text is compared with, `whole` B before anything is pruned.

    `arguments` name the text on the command line.
    """

    name: str
    text: str
    landmarks: tuple[Landmark, ...]
    arguments: tuple[str, ...]
    data_dir: str | None
    a: PassageModel
    whole: PassageModel
    pruning: Pruning

    @property
    def known_order(self) -> Orders | None:
        """The orders where nothing needs to be measured for them: they are random, or nothing is pruned by level."""
        if self.pruning.missing(Evidence()):
            return None
        return orders_from(self.whole.target.shape, self.pruning.ranking, Evidence())

    def b(self, orders: Orders) -> PassageModel:
        """B: the two levels of these orders and the typed mask pruned."""
        return replace(self.whole, mask=self.pruning.mask(orders))

    def losses(self, side: PassageModel) -> Measurement[TokenLosses]:
        """The losses of the whole text by one side."""
        return token_losses(side.target, self.text, side.mask)


def measurements(x: PassageControls, b: PassageModel) -> Measurements:
    """What is shown: both sides, and what B is ranked by."""
    sides = {"A": x.a, "B": b} if b != x.a else {"A": x.a}
    found = {name: x.losses(side) for name, side in sides.items()}
    return {**found, **ranking_part(b.target, x.pruning, x.data_dir)}


def in_words(x: PassageControls, b: PassageModel, n_tokens: int) -> str:
    """Which models read which text, and what they lack."""
    sides = []
    for name, side in (("A", x.a), ("B", b)):
        lacks = "" if side.mask.is_full else f", pruned: {side.mask.text()}"
        sides.append(f"{name} {side.target.identity.name} in {side.target.spec.precision}{lacks}")
    return " · ".join([*sides, f"{x.name}, {n_tokens:,} tokens"])


def command(x: PassageControls, b: PassageModel) -> str:
    """The shell command that measures the same and finds what is stored here."""
    words, of_a, of_b = list(x.arguments), x.a.target.spec, b.target.spec
    for option, mask in (("--mask-a", x.a.mask), ("--mask", b.mask)):
        words += [] if mask.is_full else [option, mask.text()]
    words += ["--other-model", of_b.model] if of_b.model != of_a.model else []
    words += ["--other-precision", of_b.precision] if of_b.precision != of_a.precision else []
    return command_line("losses", x.a.target, None, [*words, "--out", "losses.csv"])
