"""A folder of weights that is written aside and renamed when it is whole, and safetensors files of bounded size.

While it is written its name ends in `.unfinished`, and a file in it says which process writes. A run that was killed
leaves that folder; the next one to the same place removes it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cache.files import replacing
from engine.errors import HeadroomError, UsageError
from engine.files import named
from engine.process_marks import running_process, this_process

if TYPE_CHECKING:
    from torch import Tensor

SHARD_BYTES = 2_000_000_000  # of a file of weights; what is held in memory at once
UNFINISHED = ".unfinished"
MARK = "headroom-export.json"  # in the unfinished folder alone
MORE_BYTES = 20_000_000  # tokenizer, card and the rest beside the weights


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor that is to be written: its name, its size in bytes, and what makes it when it is its turn."""

    name: str
    n_bytes: int
    make: Callable[[], Tensor]


def refuse_taken(out: Path) -> None:
    """UsageError where something is at `out` already, HeadroomError where no folder can be made there."""
    if out.exists() or out.is_symlink():
        what = "folder" if out.is_dir() else "file"
        raise UsageError(f"{out} is there already, and an export overwrites no {what}; give a name that is free")
    parent = out.parent
    if not parent.is_dir():
        raise UsageError(f"cannot write {out} (there is no folder {parent}); make it or choose another")
    if not os.access(parent, os.W_OK):
        raise HeadroomError(f"cannot write {out} (no permission to write in {parent}); choose another folder")


def named_folder(text: str) -> Path:
    """The folder that a user means, whole; UsageError where there can be none of that name."""
    if not text.strip():
        raise UsageError("no folder is named; say where the exported model is to be written")
    return Path(os.path.abspath(named(text.strip(), "folder")))


@contextmanager
def written_aside(out: Path, n_bytes: int) -> Iterator[Path]:
    """Context with the folder to write into; afterwards it is at `out`, or gone where anything failed. OSErrors become
    one line."""
    refuse_taken(out)
    aside = out.with_name(out.name + UNFINISHED)
    try:
        _clear(aside)
        free = shutil.disk_usage(out.parent).free
        if free < n_bytes + MORE_BYTES:
            raise HeadroomError(f"{out} would take {(n_bytes + MORE_BYTES) / 1e6:,.0f} MB and {free / 1e6:,.0f} MB are "
                                "free on that disk; free some or choose another")  # fmt: skip
        aside.mkdir()
        with replacing(out, aside):
            (aside / MARK).write_text(json.dumps(asdict(this_process())))
            yield aside
            (aside / MARK).unlink()
            refuse_taken(out)
    except OSError as error:
        raise HeadroomError(f"cannot write {out} ({error.strerror or error}); nothing is left of it") from error


def write_weights(folder: Path, tensors: Sequence[PlannedTensor]) -> Iterator[tuple[int, str]]:
    """Writes the tensors as safetensors, in as many files as SHARD_BYTES asks for, with an index where they are
    several; yields (bytes done, name) after each tensor."""
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
            shutil.copymode(folder / MARK, folder / file)  # its own is for the owner alone
        except SafetensorError as error:  # of the disk, as it is written
            raise OSError(f"{error}") from error
    if len(shards) > 1:
        index = {each.name: file for file, shard in zip(names, shards, strict=True) for each in shard}
        about = {"metadata": {"total_size": done}, "weight_map": index}
        (folder / "model.safetensors.index.json").write_text(json.dumps(about, indent=2, sort_keys=True) + "\n")


def folder_bytes(folder: Path) -> int:
    """Bytes of the weight files of a folder."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _clear(aside: Path) -> None:
    """Removes what a run that was killed has left; HeadroomError where another still writes, or it is no export."""
    if not aside.exists():
        return
    if not (aside / MARK).is_file():
        raise HeadroomError(f"{aside} is in the way and is no unfinished export; move it, or choose another name")
    if running_process(aside / MARK) is not None:
        raise HeadroomError(f"another export is writing {aside}; wait for it, or choose another name")
    shutil.rmtree(aside)
