"""Layers on disk: their tensors as memory-mapped files, in a folder next to the result store.

The system reads such a tensor when a pass needs it, and drops it again when memory runs short, before it would end a
process. To torch it is a tensor like any other, so that all that reads or runs a layer finds it there; its values begin
at a page, as sums of numbers may depend on where these lie.

The folder is this process's own, held by a lock that the system frees when the process ends; it goes with the model,
and what a killed process left goes at the next load.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.architecture.family import Family
from engine.architecture.layer_tensors import place_of
from engine.architecture.transformers_internals import mark_loaded
from engine.checkpoints.tensors import LazyTensor, finite
from engine.errors import HeadroomError
from engine.files import lock_folder
from engine.kernels.bitsandbytes_internals import is_plain_layer, quantized, set_quantized

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "layers"  # next to the results
OWN = re.compile(r"of-\d+-\w+")
PAGE_BYTES = 4096
MOST_WRITERS = 8  # above the threads in which transformers reads: each may write one more once a load has failed


class DiskOffload:
    """A folder for the tensors of one model. `files` are what was written so far."""

    def __init__(self, within: Path) -> None:
        self.files: list[Path] = []
        self._numbers = count()
        try:
            within.mkdir(mode=0o700, parents=True, exist_ok=True)
            making = Path(tempfile.mkdtemp(prefix="making-", dir=within))
            self._held = lock_folder(making)
            self.folder = making.rename(within / f"of-{os.getpid()}-{making.name.removeprefix('making-')}")
        except OSError as error:
            raise HeadroomError(f"layers cannot be set aside in {within} ({error.strerror}); give another folder by "
                                "--cache or HEADROOM_CACHE") from error  # fmt: skip
        self._remove = weakref.finalize(self, _remove, self.folder, self._held)

    def goes_with(self, model: Any) -> None:
        """From now on the folder lasts as long as the model does."""
        self._remove.detach()
        self._remove = weakref.finalize(model, _remove, self.folder, self._held)

    def remove(self) -> None:
        """Removes the folder; mapped tensors stay readable until they are released."""
        self._remove()

    def mapped(self, tensor: Tensor) -> Tensor:
        """The same tensor, from now on in a file. HeadroomError: the disk is full or broken."""
        import torch

        if not tensor.numel():
            return tensor
        file, flat = self.folder / str(next(self._numbers)), tensor.detach().contiguous().view(-1)
        try:
            with file.open("wb", buffering=0) as handle:
                rest = memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]
                while rest:
                    rest = rest[handle.write(rest) :]
        except OSError as error:
            raise HeadroomError(f"{self.folder} cannot hold the model's layers ({error.strerror}); free space there, "
                                "or give another folder by --cache or HEADROOM_CACHE") from error  # fmt: skip
        self.files.append(file)
        return torch.from_file(str(file), shared=False, size=flat.numel(), dtype=tensor.dtype).view(tensor.shape)

    def bytes_per_s(self) -> float | None:
        """How fast mapped files are read here, from the disk itself where the system can be told to drop what it holds
        of them; None where nothing was written."""
        import numpy as np

        if not self.files:
            return None
        largest = max(self.files, key=lambda file: file.stat().st_size)
        sample = shutil.copyfile(largest, self.folder / "sample")  # nobody has mapped it: its pages can be dropped
        try:
            _forget(sample)
            began = time.perf_counter()
            values = np.memmap(sample, np.uint8, "r")
            values[::PAGE_BYTES].max()
            return len(values) / (time.perf_counter() - began)
        finally:
            sample.unlink()


@contextmanager
def offload_to_disk(within: Path, is_needed: bool) -> Iterator[DiskOffload | None]:
    """A DiskOffload where one is needed, else None; its folder goes when the context ends in an error."""
    aside = DiskOffload(within) if is_needed else None
    try:
        yield aside
    except BaseException:
        if aside is not None:
            aside.remove()
        raise


def on_disk(
    tensors: Mapping[str, LazyTensor], layers: Sequence[int], aside: DiskOffload, dtype: Any
) -> dict[str, LazyTensor]:
    """The same tensors, those of these layers mapped from files in `dtype` once they are asked for."""

    def mapped(stored: LazyTensor) -> Tensor:
        return aside.mapped(finite(stored.name, stored.read()).to(dtype))

    return {
        name: replace(stored, read=partial(mapped, stored)) if _layer_of(stored) in layers else stored
        for name, stored in tensors.items()
    }


class Quantized:
    """Sets int8 layers aside while they are loaded: each as soon as the next one is begun, so that never all of them
    lie in memory. Norms and biases stay there. transformers loads layers in order, one tensor at a time."""

    def __init__(self, family: Family, layers: Sequence[int], aside: DiskOffload) -> None:
        self._family, self._waiting, self._aside = family, list(layers), aside
        self._model: Any = None

    def begin(self, model: Any) -> None:
        """Takes the model, as soon as it is there and before its first tensor is loaded."""
        self._model = model

    def followed(self, tensors: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
        """The same tensors; reading one offloads the layers that are finished."""

        def read(stored: LazyTensor, layer: int) -> Tensor:
            self.set_aside_before(layer)
            return stored.read()

        layers = {name: _layer_of(stored) for name, stored in tensors.items()}
        return {
            name: stored if (layer := layers[name]) is None else replace(stored, read=partial(read, stored, layer))
            for name, stored in tensors.items()
        }

    def set_aside_before(self, end: int) -> None:
        """Sets aside the layers in front of this one that wait for it."""
        while self._waiting and self._waiting[0] < end:
            number = self._waiting.pop(0)
            for module in self._family.layer_list(self._model)[number].modules():
                if is_plain_layer(module):
                    data, scales = quantized(module)
                    set_quantized(module, self._aside.mapped(data), scales)
                    mark_loaded(module.weight)


def _layer_of(stored: LazyTensor) -> int | None:
    place = place_of(stored.name)
    return None if place is None else place.layer


def clear_leftovers(within: Path) -> None:
    """Removes what killed processes left; nothing where the system has no locks on folders."""
    with suppress(OSError):
        for folder in within.iterdir():
            if OWN.fullmatch(folder.name) and (held := lock_folder(folder)) is not None:
                _remove(folder, held)


def _remove(folder: Path, held: int | None) -> None:
    for _ in range(MOST_WRITERS):
        shutil.rmtree(folder, ignore_errors=True)  # not whole where a file came meanwhile
        if not folder.exists():
            break
    if held is not None:
        with suppress(OSError):
            os.close(held)


def _forget(file: Path) -> None:
    """Has the system drop what it holds of a file in memory, where it can."""
    if not hasattr(os, "posix_fadvise"):
        return
    with file.open("rb") as handle:
        with suppress(OSError):
            os.fsync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
