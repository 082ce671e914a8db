"""Parts of a measurement that only sleep: what giving them to workers costs."""

import os
import time

import numpy as np

from engine.composed import Gathered, every
from engine.measurement import Measurement, measured_apart, single
from engine.models.loading import Loaded
from engine.models.session import Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.records import canonical_key

SLEEP_S = 0.2


@measured_apart
def asleep(target: Target, number: int) -> Measurement[np.ndarray]:
    """Returns the process, and when it fell asleep and woke up."""
    key = canonical_key("asleep", target.key() | {"number": number})
    return single(target, Piece(key, 1, {"at": (3,)}, _asleep), lambda record: record.arrays["at"])


def _asleep(loaded: Loaded) -> Measuring:
    yield Progress(0, 1)
    began_s = time.time()
    time.sleep(SLEEP_S)
    return {"at": np.array([os.getpid(), began_s, time.time()])}, {"kind": "asleep"}


def all_asleep(target: Target, n: int) -> Measurement[Gathered[int, np.ndarray]]:
    """Returns n such parts."""
    return every(target, ("asleep", n), {number: lambda session, at=number: asleep(target, at) for number in range(n)})
