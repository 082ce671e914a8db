"""Private and fragile parts of bitsandbytes. Read in version 0.50.2 (nn/modules.py); each has a test in
tests/engine/test_library_internals.py.

An int8 layer keeps its weights (`CB`) and the largest absolute weight of each row (`SCB`) on its parameter until its
first use, from then on in `state`. Nothing public gives them, nor makes a layer from them.
"""

from __future__ import annotations

import logging
import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from engine.architecture.torch_internals import compiler_left_out

if TYPE_CHECKING:
    from torch import Tensor

LAYER = "Linear8bitLt"
QUIET = ("bitsandbytes.autograd._functions", "bitsandbytes.backends.cpu.ops")  # a line a layer otherwise, and one for a
# 4-bit kernel that nothing here uses

threshold = attrgetter("state.threshold")  # of a layer; from which absolute value on an input is an outlier, 0: none is


def bitsandbytes() -> Any:
    """The module. As soon as it is imported it asks torch to compile two 4-bit functions and two of optimizers; where
    that fails it takes the functions as they are."""
    if (module := sys.modules.get("bitsandbytes")) is not None:
        return module
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)
    with compiler_left_out():
        import bitsandbytes as module
    return module


def layer_class() -> Any:
    """The class of int8 layers."""
    return getattr(bitsandbytes().nn, LAYER)


def is_plain_layer(module: Any) -> bool:
    """Whether a module is an int8 layer of bitsandbytes itself, not of a class derived from it; without importing the
    library, which a model without such layers does not need."""
    return type(module).__name__ == LAYER


def new_layer(weight: Tensor, bias: Tensor) -> Any:
    """A layer of these weights (out, in) in int8, with the usual threshold: what other ways are compared with."""
    layer = layer_class()(*weight.shape[::-1], has_fp16_weights=False, threshold=6.0, device="meta")
    layer.weight = bitsandbytes().nn.Int8Params(weight, has_fp16_weights=False, requires_grad=False).to("cpu")
    layer.bias.requires_grad_(False)
    layer.bias = type(layer.bias)(bias, requires_grad=False)
    return layer.eval()


def quantized(layer: Any) -> tuple[Tensor, Tensor]:
    """(weights (out, in) int8, scales (out,) fp32) of a layer, before or after its first use."""
    held = layer.weight if layer.weight.CB is not None else layer.state
    return held.CB, held.SCB


def set_quantized(layer: Any, data: Tensor, scales: Tensor) -> None:
    """Gives a layer that was not used yet other int8 weights and scales."""
    kept = {"requires_grad": False, "has_fp16_weights": False}
    layer.weight = type(layer.weight)(data, CB=data, SCB=scales, **kept)


def layer_like(layer: Any, data: Tensor, scales: Tensor) -> Any:
    """A layer of the same class and threshold with these int8 weights and scales, without bias."""
    found = type(layer)(1, 1, bias=False, has_fp16_weights=False, threshold=threshold(layer), device="meta")
    set_quantized(found, data, scales)
    return found
