"""Private and fragile parts of torch. Read in version 2.13; each has a test in
tests/engine/test_library_internals.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache as once
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

KNOWN_TORCH = "2.13."  # the version in which bf16 and int8 products were timed by processor


def exact_product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """(m, n) int32: the exact product of two int8 matrices, (m, k) and (k, n). torch has no public one;
    `has_exact_product` says whether this one works."""
    import torch

    product: Any = torch._int_mm  # type: ignore[attr-defined]
    return product(a, b) if out is None else product(a, b, out=out)


@once
def has_exact_product() -> bool:
    """Whether torch's int8 product is there and exact, tried once on whole numbers of both signs and the extremes."""
    import torch

    a = (torch.arange(40 * 48) * 37 % 255 - 127).to(torch.int8).view(40, 48)
    b = (torch.arange(24 * 48) * 53 % 255 - 127).to(torch.int8).view(24, 48)
    a[3], b[5] = 127, -127
    try:
        found = exact_product(a, b.t(), torch.empty(40, 24, dtype=torch.int32))
        return torch.equal(found.long(), a.long() @ b.t().long()) and exact_product(a[:0], b.t()).shape == (0, 24)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False


@contextmanager
def compile_refused() -> Iterator[None]:
    """Context in which torch.compile raises RuntimeError. A library that compiles functions while it is imported has
    torch import its whole compiler, a second of work; one that expects a failure then keeps the plain functions."""
    import torch

    def refused(*args: Any, **options: Any) -> Any:
        raise RuntimeError("nothing is compiled here")

    before = torch.compile
    try:
        torch.compile = refused  # type: ignore[assignment]
        yield
    finally:
        torch.compile = before


def replace_class(module: Any, to: type) -> None:
    """Makes a module an instance of another class from now on. Its parameters, its hooks and the modules that hold it
    stay as they are, which a new module in its place could not offer."""
    module.__class__ = to
