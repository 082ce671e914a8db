"""Linear layers of a model on a CPU, as this processor is fastest (`engine.kernels.kernel_choice`).

A bf16 layer's product may be taken in fp32 and rounded once, as native bf16 with fp32 sums does: without 16-bit
arithmetic torch multiplies bf16 eight times slower than fp32. An int8 layer quantizes its input row by row and keeps
outlier columns apart as LLM.int8() does (Dettmers et al. 2022); its whole numbers are multiplied by the processor's own
int8 products, exact in int32, or in fp32, which is exact as long as sums stay under 2^24. bitsandbytes' own layers take
the same products in more and longer passes over memory; here blocks stay in the processor's cache until they are
rounded. Departs from bitsandbytes in two roundings: the outliers' part is added before the result is rounded to bf16,
not after, and a gradient is scaled before it passes through int8 weights, or passes through them in fp32. Weights stay
as they are; a copy in fp32 exists block by block while it is used. An fp32 layer's product may be oneDNN's in place of
MKL's: the same numbers up to the rounding of fp32 sums.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache as once
from typing import TYPE_CHECKING, Any

from engine.architecture.torch_internals import (
    exact_product,
    has_exact_product,
    has_onednn_product,
    onednn_product,
    replace_class,
)
from engine.errors import HeadroomError
from engine.kernels.bitsandbytes_internals import is_plain_layer, layer_class, quantized, threshold

if TYPE_CHECKING:
    from torch import Tensor

OWN, FP32, INTEGER, ONEDNN = "own", "fp32", "integer", "onednn"
BLOCK = 2**22  # weights made fp32 at once: 16 MB, which stays in the processor's cache
ROWS = 1024  # inputs made fp32 at once
CACHED = 2**18  # sums, or inputs, in hand at once, for each thread: 1 MB in int32 and 1 MB in fp32
FEWEST = 128  # rows below which the int8 products themselves slow down
LEVELS = 127.0  # of int8 on each side of 0


@dataclass(frozen=True)
class Kernels:
    """Ways of matrix products on a CPU. OWN is the library's: torch's fp32 and bf16, bitsandbytes' int8; the others are
    in `engine.kernels.cpu_kernels`. `gradient` is that of int8 layers; other layers' gradients take their layer's way.
    `attention` is that of gradient passes: torch passes gradients back through it several times slower in bf16 than in
    fp32."""

    bf16: str = OWN
    int8: str = OWN
    gradient: str = OWN
    attention: str = OWN
    fp32: str = OWN

    def of(self, precision: str) -> Kernels:
        """The ways that a model in this precision takes: in int8 its unembedding stays bf16."""
        if precision == "fp32":
            return Kernels(fp32=self.fp32)
        return replace(self, fp32=OWN) if precision == "int8" else Kernels(bf16=self.bf16, attention=self.attention)

    def not_own(self, gradients: bool) -> dict[str, str]:
        """The ways that are not the library's own, as keys say them; with that of the gradients where they count."""
        ways = {name: way for name, way in asdict(self).items() if way != OWN}
        return {name: way for name, way in ways.items() if gradients or name in ("bf16", "int8", "fp32")}


def install_kernels(model: Any, products: Kernels) -> None:
    """Lets every linear layer of a model on the CPU compute by these products from now on."""
    import torch

    if INTEGER in (products.bf16, products.int8) and not has_exact_product():
        raise HeadroomError(
            "the installed torch has no exact int8 product; set HEADROOM_PRODUCTS to own, or delete the store's tuning"
        )
    if products.fp32 == ONEDNN and not has_onednn_product():
        raise HeadroomError(
            "the installed torch has no oneDNN; set HEADROOM_PRODUCTS to own, or delete the store's tuning"
        )
    shared = SharedInput(products.int8, products.gradient)
    for module in model.modules():
        if type(module) is torch.nn.Linear and module.weight.dtype == torch.bfloat16 and products.bf16 == FP32:
            replace_class(module, _linear(bf16_product, input_gradient))
        elif type(module) is torch.nn.Linear and module.weight.dtype == torch.float32 and products.fp32 == ONEDNN:
            replace_class(module, _linear(onednn_product, onednn_gradient))
        elif is_plain_layer(module) and (products.int8, products.gradient) != (OWN, OWN):
            replace_class(module, _int8_linear())
            module.shared = shared  # type: ignore[assignment]


def int8_ways() -> tuple[str, ...]:
    """The ways of int8 layers besides bitsandbytes' own that there are with the installed torch."""
    return (FP32, INTEGER) if has_exact_product() else (FP32,)


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


@dataclass(frozen=True)
class QuantizedInput:
    """A layer's input for LLM.int8(): `whole` (rows, in) int8, one fp32 `size` (rows, 1) of a step, and the outlier
    `columns` with their values `apart` (rows, columns) fp32, None without any."""

    whole: Tensor
    size: Tensor
    columns: Tensor | None
    apart: Tensor | None


class SharedInput:
    """What the int8 layers of a model have in common: their ways, and the input that was quantized last: queries, keys
    and values are made of the same one, as are gates and what they gate."""

    def __init__(self, product: str, gradient: str) -> None:
        self.product, self.gradient = product, gradient
        self._last: tuple[Any, float, QuantizedInput] | None = None

    def quantized(self, x: Tensor, threshold: float) -> QuantizedInput:
        """The input (..., in) of a layer, quantized; no pass changes a layer's input in place once a layer had it."""
        if self._last is not None and self._last[0]() is x and self._last[1] == threshold:
            return self._last[2]
        self._last = None  # first: its memory serves the next
        found = quantize_input(x.reshape(-1, x.shape[-1]), threshold)
        self._last = weakref.ref(x), threshold, found
        return found


def quantize_input(flat: Tensor, threshold: float) -> QuantizedInput:
    """`flat` (rows, in) bf16 as LLM.int8() has it: a column with a value of at least `threshold` in any row is kept
    apart (0: none is), and a row's step is a 127th of the largest of its other values."""
    import torch

    bits = flat.view(torch.int16) & 0x7FFF  # of absolute values, which order as bf16 numbers do
    largest, columns, apart = bits.amax(1) if len(flat) else bits.new_zeros(0), None, None
    least = int(torch.tensor(threshold).bfloat16().view(torch.int16)) if threshold > 0 else 0
    if threshold > 0 and bool((largest >= least).any()):
        columns = (bits.amax(0) >= least).nonzero()[:, 0]
        apart = flat[:, columns].float()
        largest = bits.masked_fill_(bits >= least, 0).amax(1)
    size = largest.view(torch.bfloat16).float().clamp_(min=1e-30)[:, None]
    whole, scale = flat.new_empty(flat.shape, dtype=torch.int8), LEVELS / size
    step = _rows_in_cache(flat.shape[1])
    held = torch.empty(min(step, len(flat)), flat.shape[1])
    for rows in _slices(len(flat), step):
        whole[rows] = held[: rows.stop - rows.start].copy_(flat[rows]).mul_(scale[rows]).round_()
    if columns is not None:
        whole[:, columns] = 0
    return QuantizedInput(whole, size / LEVELS, columns, apart)


def int8_product(rows: QuantizedInput, weight: Tensor, scales: Tensor, bias: Tensor | None, exactly: bool) -> Tensor:
    """(rows, out) bf16 by LLM.int8(): `weight` (out, in) int8, `scales` (out,) the largest absolute weight of each row,
    `exactly`: by integer products, else in fp32."""
    import torch

    found = torch.empty(len(rows.whole), len(weight), dtype=torch.bfloat16)
    size, bias = scales.float() / LEVELS, None if bias is None else bias.float()
    if rows.columns is not None:
        apart = (weight[:, rows.columns] * size[:, None]).t()
    for at, outs, sums in _exact_sums(rows.whole, weight) if exactly else _fp32_sums(rows.whole, weight):
        part = sums.mul_(rows.size[at]).mul_(size[outs])
        if rows.apart is not None:
            part.addmm_(rows.apart[at], apart[:, outs])
        found[at, outs] = part if bias is None else part.add_(bias[outs])
    return found


def _exact_sums(whole: Tensor, weight: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """(rows, outputs, their sums as fp32, which may be written to) block by block."""
    import torch

    step = _rows_in_cache(len(weight))
    held = torch.empty(min(step, len(whole)), len(weight), dtype=torch.int32)
    sums = torch.empty_like(held, dtype=torch.float32)
    for at in _slices(len(whole), step):
        n = at.stop - at.start
        yield at, slice(None), sums[:n].copy_(exact_product(whole[at], weight.t(), held[:n]))


def _fp32_sums(whole: Tensor, weight: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """As `_exact_sums`."""
    for outs in _blocks(weight):
        large = weight[outs].float().t()
        for at in _slices(len(whole), ROWS):
            yield at, outs, whole[at].float() @ large


def _rows_in_cache(width: int) -> int:
    import torch

    return max(FEWEST, CACHED * torch.get_num_threads() // width)


def own_gradient(gradient: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """As `input_gradient`, in the gradient's dtype, which holds each int8 weight exactly: the gradient is scaled, where
    bitsandbytes rounds each scaled weight."""
    return gradient.float().mul_(scales / LEVELS).to(gradient.dtype) @ weight.to(gradient.dtype)


def input_gradient(gradient: Tensor, weight: Tensor, scales: Tensor | None = None) -> Tensor:
    """(..., in): the gradient (..., out) of a product passed back through its weights (out, in), int8 with `scales`."""
    flat = gradient.reshape(-1, gradient.shape[-1]).float()
    found = flat.new_zeros(len(flat), weight.shape[1])
    for rows in _blocks(weight):
        part = weight[rows].float()
        found.addmm_(flat[:, rows], part if scales is None else part.mul_(scales[rows, None] / LEVELS))
    return found.to(gradient.dtype).view(*gradient.shape[:-1], found.shape[1])


def onednn_gradient(gradient: Tensor, weight: Tensor) -> Tensor:
    """As `input_gradient`, of fp32 weights by oneDNN."""
    return onednn_product(gradient, weight.t())


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
            return ctx.layer.input_gradient(gradients[0]), None

    return Through


@once
def _linear(product: Callable[..., Tensor], gradient_of: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """The class of linear layers that multiply by `product` (x, weight, bias), and pass gradients back by
    `gradient_of` (gradient, weight)."""
    import torch

    class KernelLinear(torch.nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            if input.dtype != self.weight.dtype:
                return super().forward(input)
            return _through().apply(input, self) if torch.is_grad_enabled() else self.product(input)

        def product(self, x: Tensor) -> Tensor:
            return product(x, self.weight, self.bias)

        def input_gradient(self, gradient: Tensor) -> Tensor:
            return gradient_of(gradient, self.weight)

    return KernelLinear


@once
def _int8_linear() -> Any:
    import torch

    class Int8Linear(layer_class()):
        shared: SharedInput

        def forward(self, x: Tensor) -> Tensor:
            if x.dtype != torch.bfloat16:
                return super().forward(x)
            return _through().apply(x, self) if torch.is_grad_enabled() else self.product(x)

        def product(self, x: Tensor) -> Tensor:
            if self.shared.product == OWN:
                return super().forward(x)
            rows = self.shared.quantized(x, threshold(self))
            found = int8_product(rows, *quantized(self), self.bias, self.shared.product == INTEGER)
            return found.view(*x.shape[:-1], found.shape[1])

        def input_gradient(self, gradient: Tensor) -> Tensor:
            return (input_gradient if self.shared.gradient == FP32 else own_gradient)(gradient, *quantized(self))

    return Int8Linear
