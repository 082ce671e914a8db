"""How long passes of a model take on a device, scaled by operations from a model that was timed on one like it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cache import Store
from engine.architecture.model_config import ModelConfig
from engine.placement.hardware import Device
from engine.timing.observed_timings import FACTOR, Pass, Timed, timed_passes


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
