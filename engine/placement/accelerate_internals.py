"""Weights that lie in main memory while their layer runs on a GPU: accelerate brings them there for each pass, and here
they are moved for other readers too. In between, their parameters are on torch's `meta` device, empty.

Private and fragile parts of accelerate are used here alone. Read in version 1.15 (hooks.py, big_modeling.py,
utils/modeling.py); each has a test in tests/engine/test_library_internals.py.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

SAMPLE_BYTES = 2**27


def quiet_accelerate() -> None:
    """Silences the warning about where layers are: the app says that itself."""
    logging.getLogger("accelerate.big_modeling").setLevel(logging.ERROR)


@contextmanager
def onloaded(*modules: Any) -> Iterator[None]:
    """Context in which the weights of these modules, and of what they are made of, can be read on the device that they
    run on. What lies there anyway costs nothing."""
    away = [each for module in modules if module is not None for each in module.modules() if is_offloaded(each)]
    if not away:
        yield
        return
    from accelerate.utils import align_module_device

    with ExitStack() as brought:
        for each in away:
            brought.enter_context(align_module_device(each))
        yield


def is_offloaded(module: Any) -> bool:
    """Whether accelerate moves a module's own weights, and they lie elsewhere now."""
    return hasattr(module, "_hf_hook") and any(each.device.type == "meta" for each in module.parameters(recurse=False))


def bytes_per_s_to(device: Any) -> float | None:
    """How fast main memory's tensors are brought to a GPU, measured now; None of a CPU."""
    import torch

    if device.type != "cuda":
        return None
    values = torch.empty(SAMPLE_BYTES, dtype=torch.uint8)
    values.to(device)  # the first one waits for the driver
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    values.to(device)
    torch.cuda.synchronize(device)
    return SAMPLE_BYTES / (time.perf_counter() - began)
