"""A function vector (Todd et al. 2310.15213) that is added to the residual stream before one layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.models.loading import Loaded
from engine.models.weights import output_weights

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AddedVector:
    """What heads of the full model write on average after solved examples of a task, and where it is added: at the last
    token of a prompt or context alone. Generated tokens and choices get none, as in the paper's definition.

    task: digest of the task's word pairs
    heads: (layer, head) of the vector
    z: (L, H, d_head) mean output of each head of the model
    layer: whose input gets the vector
    """

    task: str
    heads: tuple[tuple[int, int], ...]
    z: np.ndarray
    layer: int

    def key(self) -> dict[str, Any]:
        """Returns what identifies the vector of a model, as a field of a key."""
        return {"pairs": self.task, "heads": [list(head) for head in self.heads], "layer": self.layer}

    def in_model(self, loaded: Loaded) -> tuple[int, Tensor]:
        """Returns the layer, and what is added to its input (d_model,)."""
        return self.layer, function_vector(loaded, self.heads, self.z)


def function_vector(loaded: Loaded, heads: Sequence[tuple[int, int]], z: np.ndarray) -> Tensor:
    """Returns (d_model,): what these heads add to the residual stream with their mean outputs `z` (L, H, d_head)."""
    import torch

    with torch.inference_mode():
        written = [output_weights(loaded, layer)[head] for layer, head in heads]  # (d_head, d_model) each
        each = [torch.from_numpy(z[at]).to(weights) @ weights for at, weights in zip(heads, written, strict=True)]
        return torch.stack(each).sum(0)


def vector_field(added: AddedVector | None) -> dict[str, Any]:
    """Returns the field of a key that names an added vector; none without one."""
    return {} if added is None else {"vector": added.key()}


@contextmanager
def adding(loaded: Loaded, layer: int, vector: Tensor, places: Sequence[int]) -> Iterator[None]:
    """Context in which the input of a layer has the vector (d_model,) added at these tokens, counted over all rows."""
    import torch

    at = torch.tensor(places)

    def add(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        stream = args[0] if args else kwargs["hidden_states"]
        more = vector.to(stream).expand(len(at), -1)
        changed = stream.flatten(0, -2).index_add(0, at.to(stream.device), more).view_as(stream)
        return ((changed, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": changed})

    with loaded.family.layer_list(loaded.model)[layer].register_forward_pre_hook(add, with_kwargs=True):
        yield
