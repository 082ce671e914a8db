"""How fast a model is on this machine: seconds a character of text, smoothed over real passes and kept in the store;
and of a model that was not timed, scaled by operations from one that was.

Characters stand for tokens: they are known before anything is encoded. Gradient passes have a rate of their own, and so
have passes that give attention patterns.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from cache import Store
from engine.architecture.model_config import ModelConfig
from engine.errors import HeadroomError
from engine.kernels.kernel_choice import processor
from engine.models.loading import device_class
from engine.models.session import Target
from engine.placement.devices import Device, known_gpu
from engine.records import SCHEMA, Record, canonical_key, decode, encode

Pass = Literal["forward", "gradient", "patterns"]
FADING = 0.7  # what came before counts for so much less with each new measurement
ALIKE = 0.05  # of the rate: a timing within this share of it adds nothing
PLAIN = (bool, int, float, str, type(None))
FACTOR = {"forward": 1.0, "gradient": 1.5, "patterns": 2.0}  # times a forward pass, as long as none was timed


@dataclass(frozen=True)
class Timed:
    """A model whose forward passes were timed, perhaps its gradient passes too: in which precision, at how many seconds
    a character, and on what: a `processor` of so many `cores`, or a `gpu` by its driver's name."""

    name: str
    config: Mapping[str, Any]
    precision: str
    s_a_character: float
    gradient_s_a_character: float | None
    processor: str
    cores: int | None
    gpu: str = ""

    @property
    def n_params(self) -> int:
        return ModelConfig(self.name, self.config).parts.n_params

    @property
    def on(self) -> str:
        """The device, in words."""
        return self.gpu or f"{self.cores} cores of {self.processor or 'this processor'}"

    def is_on(self, device: Device) -> bool:
        """Whether it was timed on such a device; of a processor, on this machine's."""
        if device.is_cpu:
            return not self.gpu and (self.processor, self.cores) == (processor(), os.cpu_count())
        return bool(self.gpu) and known_gpu(self.gpu) == device.name


def timed_passes(store: Store) -> Iterator[Timed]:
    """All models whose passes were timed, as far as this store knows."""
    for key in store.keys():
        record = decode(store.get(key)) if key.startswith(f"{SCHEMA}/rates/") else None
        with suppress(KeyError, TypeError, ValueError, AttributeError, HeadroomError):
            if record is not None:
                each = {kind: float(seconds) / float(n) for kind, (seconds, n) in record.receipt["rates"].items()}
                fields = record.receipt["of"] | {"name": record.receipt["name"]}
                found = Timed(**fields, s_a_character=each["forward"], gradient_s_a_character=each.get("gradient"))
                if found.n_params and min(each.values()) > 0:
                    yield found


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
    about = {"name": target.identity.name, "of": _of(target), "rates": known | {kind: now}}
    record = Record({}, {"kind": "rates"} | about)
    store.put(_key(target), encode(record))


def _known(store: Store, target: Target) -> dict[str, tuple[float, float]]:
    """(seconds, characters) by kind of pass."""
    record = decode(store.get(_key(target)))
    if record is not None:
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            found = {kind: (float(seconds), float(n)) for kind, (seconds, n) in record.receipt["rates"].items()}
            return {kind: (seconds, n) for kind, (seconds, n) in found.items() if seconds > 0 and n > 0}
    return {}


def _of(target: Target) -> dict[str, Any]:
    """What `Timed` says of a model and of this machine."""
    config = {name: value for name, value in target.identity.config.items() if isinstance(value, PLAIN)}
    gpu = ""
    if device_class() == "cuda":
        import torch

        gpu = torch.cuda.get_device_name()
    how = {"precision": target.spec.precision, "processor": processor(), "cores": os.cpu_count()}
    return {"config": config, "gpu": gpu} | how


def _key(target: Target) -> str:
    machine = {"processor": processor(), "cores": os.cpu_count(), "device": device_class()}
    how = {"precision": target.spec.precision, "products": target.products.not_own(gradients=True)}
    return canonical_key("rates", {"model": target.identity.digest, **how, **machine})


@dataclass(frozen=True)
class ScaledTiming:
    """Seconds a character of text by kind of pass, and the model and device that they are scaled from."""

    s_a_character: Mapping[Pass, float]
    source: str

    def seconds(self, characters: Mapping[Pass, float]) -> float:
        """Seconds of passes over so many characters by kind of pass."""
        return sum(self.s_a_character[kind] * each for kind, each in characters.items())


def operations_a_token(model: ModelConfig) -> float:
    """Operations of a forward pass over one token: two for each weight of the layers' matrices. Attention and the
    unembedding, which is read at few positions, are left out."""
    return 2.0 * model.parts.n_layers * model.parts.layer.n_quantised


def scaled_timing(store: Store, model: ModelConfig, precision: str, device: Device) -> ScaledTiming | None:
    """The timing of a model in that precision, from the one nearest in operations whose passes were timed on such a
    device (of several GPUs with layers in turn, on one of them); None if none was. Gradient passes that were not timed
    take a usual multiple."""
    timed = [each for each in timed_passes(store) if each.precision == precision and each.is_on(device)]
    if not timed:
        return None

    def ratio_to(other: Timed) -> float:
        return operations_a_token(model) / operations_a_token(ModelConfig(other.name, other.config))

    nearest = min(timed, key=lambda each: abs(math.log(ratio_to(each))))
    forward, gradient = nearest.s_a_character, nearest.gradient_s_a_character
    known: dict[Pass, float] = {"forward": forward, "gradient": gradient or FACTOR["gradient"] * forward}
    source = f"{nearest.name} in {precision} took {forward * 1e3:.3g} s a thousand characters on {nearest.on}"
    return ScaledTiming({kind: ratio_to(nearest) * each for kind, each in known.items()}, source)
