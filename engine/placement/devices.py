"""The class of device that measures here, and the one whose results a user asked for."""

import os
import shutil
from functools import cache as once
from pathlib import Path

from engine.errors import HeadroomError, UsageError

DEVICES = ("cpu", "cuda")


@once
def device_class() -> str:
    """`cuda` if torch can use an NVIDIA GPU, else `cpu`; asks torch only where a driver is installed."""
    if not any(Path("/dev").glob("nvidia[0-9]*")) and shutil.which("nvidia-smi") is None:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def asked_device() -> str | None:
    """The device whose results a user wants to see, which this computer may not have: HEADROOM_DEVICE. None if it is
    not set; UsageError if it is not a device."""
    asked = os.environ.get("HEADROOM_DEVICE") or None
    if asked not in (None, *DEVICES):
        raise UsageError(f"HEADROOM_DEVICE is {asked!r}; choose one of {', '.join(DEVICES)}, or leave it empty")
    return asked


def refuse_other_device() -> None:
    """Raises HeadroomError if results of a device are wanted that this computer does not measure on: a number of one
    must never be stored as the other's."""
    if (asked := asked_device()) not in (None, device_class()):
        line = f"HEADROOM_DEVICE={asked} shows what such devices have measured, and this is not stored; unset it to "
        raise HeadroomError(f"{line}measure on this computer's {device_class()}, or measure it there")
