"""Private and fragile parts of accelerate. Read in version 1.15 (hooks.py, big_modeling.py, utils/modeling.py); each
has a test in tests/engine/test_library_internals.py.
"""

import logging
from contextlib import AbstractContextManager
from typing import Any


def is_hooked(module: Any) -> bool:
    """Whether accelerate moves what a module needs, so that its weights may be empty between passes."""
    return hasattr(module, "_hf_hook")


def onloaded_module(module: Any) -> AbstractContextManager[None]:
    """Context in which the own weights of a module that is hooked are on the device that it runs on."""
    from accelerate.utils import align_module_device

    return align_module_device(module)


def quiet_accelerate() -> None:
    """Silences the warning about where layers are: the app says that itself."""
    logging.getLogger("accelerate.big_modeling").setLevel(logging.ERROR)
