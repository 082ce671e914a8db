"""Libraries that must be imported with care."""

import logging
import sys
from typing import Any

QUIET = ("bitsandbytes.autograd._functions", "bitsandbytes.backends.cpu.ops")  # a line a layer otherwise, and one for a
# 4-bit kernel that nothing here uses


def bitsandbytes() -> Any:
    """The module. As soon as it is imported it asks torch to compile two 4-bit functions and two of optimizers, for
    which torch imports all of its compiler, a second of work; where that fails it takes the functions as they are."""
    if (module := sys.modules.get("bitsandbytes")) is not None:
        return module
    import torch

    for name in QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)
    compiles = torch.compile
    try:
        torch.compile = _refused  # type: ignore[assignment]
        import bitsandbytes as module
    finally:
        torch.compile = compiles
    return module


def _refused(*args: Any, **options: Any) -> Any:
    raise RuntimeError("nothing is compiled here")
