"""Linear layers of bf16 and int8 models on a CPU that has no 16-bit arithmetic of its own, where torch multiplies bf16
eight times slower than fp32: the same numbers by fp32 products.

A bf16 layer's product is taken in fp32 and rounded once, as native bf16 with fp32 sums does. An int8 layer quantises
its input row by row and keeps outlier columns apart as LLM.int8() does (Dettmers et al. 2022); its whole numbers are
multiplied in fp32, which is exact as long as sums stay under 2^24. Departs from bitsandbytes in two roundings: the
outliers' part is added before the result is rounded to bf16, not after, and the gradient passes through weights
dequantised to fp32, not to bf16. Weights stay as they are; a copy in fp32 exists block by block while it is used.
"""

from __future__ import annotations

from functools import cache as once
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 2**22  # weights made fp32 at once: 16 MB, which stays in the processor's cache
ROWS = 1024  # inputs made fp32 at once
LEVELS = 127.0  # of int8 on each side of 0


def put_in_place(model: Any) -> None:
    """Lets every linear layer of a bf16 or int8 model on the CPU compute by fp32 products from now on."""
    import torch

    for module in model.modules():
        if type(module) is torch.nn.Linear and module.weight.dtype == torch.bfloat16:
            module.__class__ = _bf16_linear()
        elif type(module).__name__ == "Linear8bitLt":
            module.__class__ = _int8_linear()


def bf16_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(..., out) in the dtype of `x` (..., in): x @ weight.T + bias, rounded once."""
    flat = x.reshape(-1, x.shape[-1])
    found = flat.new_empty(len(flat), len(weight))
    for outs in _blocks(weight):
        large = weight[outs].float().t()
        for rows in _slices(len(flat), ROWS):
            part = flat[rows].float() @ large
            found[rows, outs] = part if bias is None else part.add_(bias[outs])
    return found.view(*x.shape[:-1], found.shape[1])


def int8_product(x: Tensor, quantised: Tensor, scales: Tensor, bias: Tensor | None, threshold: float) -> Tensor:
    """(..., out) in the dtype of `x` (..., in) by LLM.int8(): `quantised` (out, in) int8, `scales` (out,) the largest
    absolute weight of each row, `threshold` from which an input makes its column an outlier (0: no column is)."""
    flat = x.reshape(-1, x.shape[-1])
    found, columns = flat.new_empty(len(flat), len(quantised)), _outlier_columns(flat, threshold)
    size = scales.float() / LEVELS
    for rows in _slices(len(flat), ROWS):
        whole = flat[rows].float()
        if columns is not None:
            apart = whole[:, columns]
            whole[:, columns] = apart.masked_fill(apart.abs() >= threshold, 0)
        largest = whole.amax(1).maximum(-whole.amin(1)).clamp_(min=1e-30)[:, None]
        if columns is not None:
            whole[:, columns] = 0
        whole.mul_(LEVELS / largest).round_()
        for outs in _blocks(quantised):
            part = (whole @ quantised[outs].float().t()).mul_(largest / LEVELS).mul_(size[outs])
            if columns is not None:
                part.addmm_(apart, (quantised[outs][:, columns] * size[outs, None]).t())
            found[rows, outs] = part if bias is None else part.add_(bias[outs])
    return found.view(*x.shape[:-1], found.shape[1])


def _outlier_columns(flat: Tensor, threshold: float) -> Tensor | None:
    """Indices of the columns with a value of at least `threshold` in any row, None without one."""
    if threshold <= 0 or not len(flat):
        return None
    low, high = flat.aminmax()
    if max(high.item(), -low.item()) < threshold:
        return None
    return (flat.amax(0).maximum(-flat.amin(0)) >= threshold).nonzero()[:, 0]


def input_gradient(gradient: Tensor, weight: Tensor, scales: Tensor | None = None) -> Tensor:
    """(..., in): the gradient (..., out) of a product passed back through its weights (out, in), int8 with `scales`."""
    flat = gradient.reshape(-1, gradient.shape[-1]).float()
    found = flat.new_zeros(len(flat), weight.shape[1])
    for rows in _blocks(weight):
        part = weight[rows].float()
        found.addmm_(flat[:, rows], part if scales is None else part.mul_(scales[rows, None] / LEVELS))
    return found.to(gradient.dtype).view(*gradient.shape[:-1], found.shape[1])


def _blocks(weight: Tensor) -> list[slice]:
    return _slices(len(weight), max(1, BLOCK // weight.shape[1]))


def _slices(n: int, step: int) -> list[slice]:
    return [slice(start, min(n, start + step)) for start in range(0, n, step)]


@once
def _through() -> Any:
    import torch

    class Through(torch.autograd.Function):
        """A layer's product whose gradient reaches the input alone; nothing is kept for it."""

        @staticmethod
        def forward(ctx: Any, x: Tensor, layer: Any) -> Tensor:
            ctx.layer = layer
            return layer.product(x)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, None]:
            return input_gradient(gradients[0], *ctx.layer.weights()), None

    return Through


@once
def _bf16_linear() -> Any:
    import torch

    class Bf16Linear(torch.nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            if input.dtype != self.weight.dtype:
                return super().forward(input)
            return _through().apply(input, self) if torch.is_grad_enabled() else self.product(input)

        def product(self, x: Tensor) -> Tensor:
            return bf16_product(x, self.weight, self.bias)

        def weights(self) -> tuple[Tensor]:
            return (self.weight,)

    return Bf16Linear


@once
def _int8_linear() -> Any:
    import bitsandbytes  # slow to import, and bf16 does without
    import torch

    layers: Any = bitsandbytes.nn

    class Int8Linear(layers.Linear8bitLt):
        def forward(self, x: Tensor) -> Tensor:
            return _through().apply(x, self) if torch.is_grad_enabled() else self.product(x)

        def product(self, x: Tensor) -> Tensor:
            return int8_product(x, *self.weights(), self.bias, self.state.threshold)

        def weights(self) -> tuple[Tensor, Tensor]:
            held = self.weight if self.weight.CB is not None else self.state  # before or after its first use
            return held.CB, held.SCB

    return Int8Linear
