"""Private and fragile parts of torch. Read in version 2.13; each has a test in
tests/engine/test_library_internals.py.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache as once
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

KNOWN_TORCH = "2.13."  # the version in which bf16 and int8 products were timed by processor
_ONE_AT_A_TIME = threading.RLock()


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


def onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(..., out) fp32: x (..., in) @ weight.T + bias by oneDNN; torch's own goes to MKL, which has no AVX-512 path for
    processors of AMD. Has no gradient formula."""
    import torch

    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@once
def has_onednn_product() -> bool:
    """Whether the installed torch has oneDNN's product, tried once on whole numbers, of which it must be exact."""
    import torch

    a, b = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3)
    try:
        return torch.equal(onednn_product(a, b), a @ b.t())
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False


class _Compiler(ModuleType):
    """Stands for torch's compiler: each of its decorators gives the function back. Modules in its folder can be
    imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _unchanged


def _unchanged(function: Any = None, *args: Any, **options: Any) -> Any:
    return function if callable(function) else _unchanged


def _refused(*args: Any, **options: Any) -> Any:
    raise RuntimeError("nothing is compiled here: this stands for torch.compile")


@contextmanager
def compiler_left_out() -> Iterator[None]:
    """Context in which torch.compile raises RuntimeError, and the compiler's decorators do nothing. Libraries decorate
    and compile functions while they are imported, for which torch would import its whole compiler: over a second of
    work."""
    import torch

    compiler = _Compiler("torch._dynamo")
    compiler.__path__ = [os.path.join(torch.__path__[0], "_dynamo")]
    with _ONE_AT_A_TIME, replaced(torch.__dict__, compile=_refused):
        if compiler.__name__ in sys.modules:
            yield
            return
        with (
            replaced(torch.__dict__, _dynamo=compiler, _disable_dynamo=_unchanged),
            replaced(sys.modules, **{compiler.__name__: compiler}),
        ):
            yield


@contextmanager
def replaced(names: MutableMapping[str, Any], **others: Any) -> Iterator[None]:
    """Context in which these names of a module, or of another mapping, have other values."""
    before = {name: names[name] for name in others if name in names}
    try:
        names.update(others)
        yield
    finally:
        for name in others:
            names.pop(name, None)
        names.update(before)


def replace_class(module: Any, to: type) -> None:
    """Makes a module an instance of another class from now on. Its parameters, its hooks and the modules that hold it
    stay as they are, which a new module in its place could not offer."""
    module.__class__ = to
