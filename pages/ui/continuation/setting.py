"""The settings of the Continue screen: `ContinuationControls`, their job for the worker, and their request.

No streamlit here: the generator runs in the worker thread, and everything can be tested as plain functions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.importance.rankings_of import Pruning, orders_of
from engine.importance.rules import Evidence
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Session, Target
from engine.progress import Progress, last_value
from engine.requests import ContinuePrompt
from engine.texts.continuation import Continuation, How, NextTokens, continuation, next_tokens
from pages.ui.downloads.origin import Origin, about, of_model, ranking_part
from pages.ui.page.tables import mask_counts, mask_in_words


@dataclass(frozen=True)
class Said:
    """The results so far: the mask, the likeliest next tokens of the full and of the pruned model, and the continuation
    of each. With nothing pruned, those of the pruned model are None."""

    mask: Mask | None = None
    next: NextTokens | None = None
    full: Continuation | None = None
    pruned: Continuation | None = None


@dataclass(frozen=True)
class ContinuationControls:
    """One setting of all controls."""

    target: Target
    data_dir: str | None
    prompt: str
    pruning: Pruning
    how: How
    chat: tuple[Target, str] | None = None  # the prompt as a chat, and the target that reads it

    @property
    def key(self) -> str:
        """Returns a key that changes with anything that changes the measurement."""
        of = self.target, self.pruning, self.pruning.task, self.data_dir, self.how, repr(self.prompt), bool(self.chat)
        return " ".join(map(str, of))

    @property
    def read(self) -> tuple[Target, str]:
        """Returns the target and the prompt as it reads it."""
        return self.chat or (self.target, self.prompt)

    def sides(self, mask: Mask) -> dict[str, Mask]:
        """Returns the masks of the compared models, by their fields of `Said`; with nothing pruned there is one."""
        full = Mask.full(self.target.shape)
        return {"full": full} if mask.is_full else {"full": full, "pruned": mask}

    def next_tokens(self, mask: Mask) -> Measurement[NextTokens]:
        """Returns the measurement of the likeliest next tokens of both models."""
        return next_tokens(*self.read, [*self.sides(mask).values()], self.chat is not None)

    def continuations(self, mask: Mask) -> dict[str, Measurement[Continuation]]:
        """Returns the measurement of each model's continuation, by its field of `Said`."""
        sides = self.sides(mask).items()
        is_chat = self.chat is not None
        return {name: continuation(*self.read, side, self.how, is_chat) for name, side in sides}


def measure(x: ContinuationControls, session: Session) -> Iterator[Progress[Said]]:
    """Job: the ranking if it is needed, after the full model's next tokens; the next tokens of both models, then the
    full model's continuation and the pruned one's, token by token. Stored results are read."""
    if x.pruning.missing(Evidence()):  # it may take long, and the full model's next word needs no order
        full = yield from last_value(x.next_tokens(Mask.full(x.target.shape)).run(session), 0, 1, 0, "next token")
        yield Progress(0, 1, Said(None, full))
    orders = yield from last_value(orders_of(x.target, x.pruning, x.data_dir).run(session))
    mask, n = x.pruning.mask(orders), x.how.n_tokens
    said = x.continuations(mask)
    total = n * len(said)
    found = Said(mask, (yield from last_value(x.next_tokens(mask).run(session), 0, total, 0, "next token")))
    yield Progress(0, total, found)
    for number, (name, one) in enumerate(said.items()):
        for step in one.run(session):
            found = found if step.value is None else replace(found, **{name: step.value})
            placed = step.within(number * n, total, n, f"{name.capitalize()} model, tokens")
            yield replace(placed, value=found)


def origin(x: ContinuationControls, mask: Mask | None) -> Origin:
    """Returns the request and the records of the results shown."""
    of = about(x.target, in_words(x.how), mask_in_words(x.target.shape, mask))
    mask = mask or Mask.full(x.target.shape)
    subject = f"{mask_counts(x.target.shape, mask) or 'nothing'} pruned"
    said = {f"{name.capitalize()} model": one for name, one in x.continuations(mask).items()}
    parts = {"Next tokens": x.next_tokens(mask), **said, **ranking_part(x.target, x.pruning, x.data_dir)}
    return Origin("Continue", [_request(x, mask)], parts, of, subject)


def in_words(how: How) -> str:
    """Returns a phrase such as "24 tokens, drawn at temperature 0.7 with seed 3"."""
    drawn = f"drawn at temperature {how.temperature_permille / 1000:g} with seed {how.seed}"
    return f"{how.n_tokens} tokens, {drawn if how.temperature_permille else 'each the likeliest'}"


def _request(x: ContinuationControls, mask: Mask) -> ContinuePrompt:
    """Returns the equivalent request, which finds the same stored results."""
    how = x.how
    temperature, seed = how.temperature_permille / 1000, how.seed if how.temperature_permille else 0
    return ContinuePrompt(
        **of_model(x.target), prompt=x.prompt, tokens=how.n_tokens, temperature=temperature, seed=seed,
        mask=mask.text(), chat=x.chat is not None, out="continuation.csv",
    )  # fmt: skip
