"""Whether two stores have the same results, to the last bit of every number."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from cache import Store
from engine.records import decode, public, travels

TIMES = {"measured_at", "seconds"}
PLACES = {"name", "python", "machine", "processor", "cores", "products"}  # results do not depend on, or keys have it


def results(folder: Path | str) -> dict[str, bytes]:
    """The results in a store's folder that are the same on any machine, by key."""
    with closing(Store(folder)) as store:
        return {key: store.get(key) or b"" for key in store.keys() if travels(key)}


def differences(first: Path | str, second: Path | str) -> dict[str, str]:
    """What differs between the results of two folders, by key."""
    mine, others = results(first), results(second)
    assert mine or others
    found = {key: _difference(mine.get(key), others.get(key)) for key in {*mine, *others}}
    return {key: what for key, what in found.items() if what}


def _difference(a: bytes | None, b: bytes | None) -> str:
    """What differs between two blobs of a key: any byte of an array, or of a receipt anything but when and where."""
    one, other = decode(a), decode(b)
    if one is None or other is None:
        return "" if a == b else "one is missing, or is not a record"
    if one.arrays.keys() != other.arrays.keys():
        return "the names of arrays"
    for name, mine in one.arrays.items():
        others = other.arrays[name]
        if (mine.dtype, mine.shape, mine.tobytes()) != (others.dtype, others.shape, others.tobytes()):
            return f"the numbers of {name}"
    return "" if _comparable(one.receipt) == _comparable(other.receipt) else "the receipts"


def _comparable(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """A receipt without TIMES and PLACES, the builds of libraries, and the folder of a user's own questions."""
    task, short = receipt.get("task"), dict[str, Any]()
    if isinstance(versions := receipt.get("versions"), Mapping):
        short["versions"] = {name: public(str(version)) for name, version in versions.items()}
    if isinstance(task, Mapping) and "name" in task:
        short["task"] = {**task, "name": Path(str(task["name"])).name}
    return {name: value for name, value in {**receipt, **short}.items() if name not in TIMES | PLACES}
