"""How fast a model is on this machine: seconds a character of text, smoothed over real passes and kept in the store.

Characters stand for tokens: they are known before anything is encoded. Gradient passes have a rate of their own, and so
have passes that give attention patterns.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Literal

from cache import Store
from engine.kernels.kernel_choice import processor
from engine.models.loading import device_class
from engine.models.session import Target
from engine.records import Record, canonical_key, decode, encode

Pass = Literal["forward", "gradient", "patterns"]
FADING = 0.7  # what came before counts for so much less with each new measurement
ALIKE = 0.05  # of the rate: a timing within this share of it adds nothing
FACTOR = {"forward": 1.0, "gradient": 1.5, "patterns": 2.0}  # times a forward pass, as long as none was timed


def seconds_for(store: Store, target: Target, kind: Pass, characters: float) -> float | None:
    """About how long passes over so many characters take here; None where nothing was timed yet."""
    known = _known(store, target)
    nearest = kind if kind in known else "forward"
    if nearest not in known:
        return None
    seconds, n = known[nearest]
    return characters * seconds / n * (FACTOR[kind] if nearest != kind else 1.0)


def together_s(each: Iterable[float | None]) -> float | None:
    """The seconds of several things one after the other; None where those of one are not known."""
    total = 0.0
    for seconds in each:
        if seconds is None:
            return None
        total += seconds
    return total


def learn(store: Store, target: Target, kind: Pass, characters: float, seconds: float, are_first: bool = False) -> None:
    """Remembers that passes over so many characters have taken so long. The first ones of a model in memory are slower
    than all that follow, and count only where nothing else is known."""
    known = _known(store, target)
    if characters <= 0 or seconds <= 0 or (are_first and kind in known):
        return
    before_s, before_n = known.get(kind, (0.0, 0.0))
    if before_n and abs(seconds / characters / (before_s / before_n) - 1) < ALIKE:
        return
    now = FADING * before_s + seconds, FADING * before_n + characters
    store.put(_key(target), encode(Record({}, {"kind": "rates", "rates": known | {kind: now}})))


def _known(store: Store, target: Target) -> dict[str, tuple[float, float]]:
    """(seconds, characters) by kind of pass."""
    record = decode(store.get(_key(target)))
    if record is not None:
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            found = {kind: (float(seconds), float(n)) for kind, (seconds, n) in record.receipt["rates"].items()}
            return {kind: (seconds, n) for kind, (seconds, n) in found.items() if seconds > 0 and n > 0}
    return {}


def _key(target: Target) -> str:
    machine = {"processor": processor(), "cores": os.cpu_count(), "device": device_class()}
    how = {"precision": target.spec.precision, "products": target.products.not_own(gradients=True)}
    return canonical_key("rates", {"model": target.identity.digest, **how, **machine})
