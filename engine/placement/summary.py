"""What a model takes on this computer, as `headroom models MODEL` and the settings of the app show it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.architecture.family import family_of
from engine.architecture.model_config import ModelConfig
from engine.checkpoints.hub import in_bytes
from engine.checkpoints.identity import PRECISIONS
from engine.placement.needs import in_gb, load_needs
from engine.placement.placement import Placement, describe_free


@dataclass(frozen=True)
class ModelSummary:
    """What a model takes on this computer.

    model: its config
    precision: the precision of `placement`
    free: free bytes of each place; empty if unknown
    placement: where its layers lie or would lie; None if it does not fit, or if that is unknown
    refusal: why it does not fit
    rates: measured bytes a second of moved layers
    """

    model: ModelConfig
    precision: str
    free: Mapping[str, int] = field(default_factory=dict)
    placement: Placement | None = None
    refusal: str = ""
    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def weight_bytes(self) -> dict[str, int]:
        """Bytes of the weights in memory, by precision."""
        return {each: self.model.parts.n_bytes(each) for each in PRECISIONS}

    @property
    def needed_bytes(self) -> dict[str, int]:
        """Bytes that it needs on one device to be loaded and read texts, by precision."""
        return {each: load_needs(self.model, each).total for each in PRECISIONS}

    @property
    def lines(self) -> list[str]:
        """Its size, the memory that it needs, free memory, and where its layers lie or why they do not fit."""
        shape, weights = self.model.shape, self.weight_bytes
        layers = f"{shape.n_layers} layer{'s' if shape.n_layers > 1 else ''} of {shape.n_heads} heads"
        size = f"{self.model.parts.n_params / 1e6:,.1f} M parameters with embeddings"
        needs = (f"{in_gb(n)} in {each} (weights {in_bytes(weights[each])})" for each, n in self.needed_bytes.items())
        lines = [f"{family_of(self.model.config).name}, {size}, {layers}", f"Needs {', '.join(needs)}"]
        lines += [describe_free(self.free)] if self.free else []
        if self.placement is not None:
            lines.append(f"In {self.precision}: {self.placement.with_cost(self.rates)}")
        return lines + [self.refusal] * bool(self.refusal)
