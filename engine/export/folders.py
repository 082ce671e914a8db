"""A folder of weights that is written under a temporary name and renamed when complete, and safetensors files of
bounded size.

While it is written, its name ends in `.unfinished`, and a file in it names the writing process. A killed run leaves
this folder; the next export to the same name removes it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cache.files import replacing
from engine.checkpoints.tensor_index import TYPES
from engine.errors import HeadroomError, UsageError
from engine.files import named, running_process, this_process

if TYPE_CHECKING:
    from torch import Tensor

SHARD_BYTES = 2_000_000_000  # largest file of weights, and the most held in memory at once
UNFINISHED = ".unfinished"
MARK = "headroom-export.json"  # only in the unfinished folder
MORE_BYTES = 20_000_000  # tokenizer, card and other files besides the weights


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor to write: its name, shape and type (torch's name), and the function that makes it just before it is
    written."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    make: Callable[[], Tensor]

    @property
    def n_bytes(self) -> int:
        return TYPES[self.dtype][0] * math.prod(self.shape)


def refuse_taken(out: Path) -> None:
    """Raises UsageError if `out` already exists or has no parent folder, HeadroomError if it cannot be written."""
    if out.exists() or out.is_symlink():
        what = "folder" if out.is_dir() else "file"
        raise UsageError(f"{out} is there already, and an export never overwrites a {what}; choose another name")
    parent = out.parent
    if not parent.is_dir():
        raise UsageError(f"cannot write {out} (the folder {parent} does not exist); create it or choose another")
    if not os.access(parent, os.W_OK):
        raise HeadroomError(f"cannot write {out} (no permission to write in {parent}); choose another folder")


def named_folder(text: str) -> Path:
    """Returns the absolute path of a folder named by a user. UsageError: not a valid name."""
    if not text.strip():
        raise UsageError("no folder is named; name the folder to write the exported model to")
    return Path(os.path.abspath(named(text.strip(), "folder")))


@contextmanager
def written_aside(out: Path, n_bytes: int) -> Iterator[Path]:
    """Context with the folder to write into; afterwards it is renamed to `out`, or removed if anything failed. OSErrors
    become one-line HeadroomErrors."""
    refuse_taken(out)
    aside = out.with_name(out.name + UNFINISHED)
    try:
        _clear(aside)
        free = shutil.disk_usage(out.parent).free
        if free < n_bytes + MORE_BYTES:
            raise HeadroomError(f"{out} needs {(n_bytes + MORE_BYTES) / 1e6:,.0f} MB and {free / 1e6:,.0f} MB are free "
                                "on that disk; free some or choose another")  # fmt: skip
        aside.mkdir()
        with replacing(out, aside):
            (aside / MARK).write_text(json.dumps(asdict(this_process())))
            yield aside
            (aside / MARK).unlink()
            refuse_taken(out)
    except OSError as error:
        raise HeadroomError(
            f"cannot write {out} ({error.strerror or error}); the unfinished export is removed"
        ) from error


def write_weights(folder: Path, tensors: Sequence[PlannedTensor]) -> Iterator[tuple[int, str]]:
    """Writes the tensors as safetensors files of at most SHARD_BYTES, with an index if there are several; yields (bytes
    done, name) after each tensor."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    shards: list[list[PlannedTensor]] = []
    for tensor in tensors:
        if not shards or sum(each.n_bytes for each in shards[-1]) + tensor.n_bytes > SHARD_BYTES:
            shards.append([])
        shards[-1].append(tensor)
    names = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    names = ["model.safetensors"] if len(shards) == 1 else names
    done = 0
    for file, shard in zip(names, shards, strict=True):
        made: dict[str, Tensor] = {}
        for tensor in shard:
            made[tensor.name] = tensor.make().contiguous()
            done += tensor.n_bytes
            yield done, tensor.name
        try:
            save_file(made, str(folder / file), metadata={"format": "pt"})
            shutil.copymode(folder / MARK, folder / file)  # save_file makes it readable only for the owner
        except SafetensorError as error:  # a disk error while writing
            raise OSError(f"{error}") from error
    if len(shards) > 1:
        index = {each.name: file for file, shard in zip(names, shards, strict=True) for each in shard}
        about = {"metadata": {"total_size": done}, "weight_map": index}
        (folder / "model.safetensors.index.json").write_text(json.dumps(about, indent=2, sort_keys=True) + "\n")


def folder_bytes(folder: Path) -> int:
    """Returns the bytes of a folder's weight files."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _clear(aside: Path) -> None:
    """Removes the folder of a killed run. HeadroomError: another process is writing it, or it is not an export."""
    if not aside.exists():
        return
    if not (aside / MARK).is_file():
        raise HeadroomError(f"{aside} is in the way and is not an unfinished export; move it, or choose another name")
    if running_process(aside / MARK) is not None:
        raise HeadroomError(f"another export is writing {aside}; wait for it, or choose another name")
    shutil.rmtree(aside)
