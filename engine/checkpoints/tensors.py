"""The tensors of a checkpoint, each read from disk only when it is asked for, whatever kind its files are of.

Reading, not mapping: the pages of a mapped file count as the process's memory until the end of a load, on top of what
was made of them. Nothing of a file is ever executed.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.architecture.families.definition import Family
from engine.architecture.model_config import BUFFERS, UNEMBEDDINGS
from engine.checkpoints.tensor_index import Entry, contents, extent
from engine.checkpoints.tensor_names import own_names
from engine.checkpoints.weight_files import weight_files
from engine.errors import HeadroomError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LazyTensor:
    """A tensor that still lies in its file; `stored[...]` reads it, as of a slice of safetensors.

    name: in the model
    shape: of the tensor
    dtype: torch's name of its type
    read: reads it
    in_file: its name in the file, if that is another
    is_quantized: it becomes a matrix of int8
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], Tensor]
    in_file: str = ""
    is_quantized: bool = False

    def __getitem__(self, index: Any) -> Tensor:
        return finite(self.name, self.read(), self.is_quantized)[index]


@contextmanager
def stored_tensors(folder: Path, is_tied: bool) -> Iterator[dict[str, LazyTensor]]:
    """The tensors of a folder's weight files by name, buffers left out, readable while the context is open.

    `is_tied`: the unembedding is the embedding, so that one that lies at the same place in a file is left out.
    HeadroomError where a file holds something else.
    """
    from safetensors import safe_open

    with ExitStack() as opened:
        tensors: dict[str, LazyTensor] = {}
        for file in weight_files(folder):
            entries = contents(file)
            if entries is None:
                tensors |= _read_whole(file)
            elif file.suffix == ".safetensors":
                handle = opened.enter_context(safe_open(str(file), framework="pt", device="cpu", backend="pread"))
                for name, entry in entries.items():
                    tensors[name] = LazyTensor(name, entry.shape, entry.dtype, partial(_slice, handle, name))
            else:
                places = [entry.at for entry in entries.values()]
                for name, entry in entries.items():
                    if not (is_tied and name.endswith(UNEMBEDDINGS) and places.count(entry.at) > 1):
                        tensors[name] = LazyTensor(name, entry.shape, entry.dtype, partial(_read, entry))
        yield {name: tensor for name, tensor in tensors.items() if not BUFFERS.fullmatch(name)}


def under_own_names(stored: Mapping[str, LazyTensor], family: Family) -> dict[str, LazyTensor]:
    """The same tensors by their names in the model, without prefixes of wrappers (`own_names`)."""
    names = own_names(stored, family)
    return {
        own: stored[name] if own == name else replace(stored[name], name=own, in_file=name)
        for name, own in names.items()
    }


def finite(name: str, tensor: Tensor, is_quantized: bool = False) -> Tensor:
    """The tensor; HeadroomError if a value is not finite, or, before it `is_quantized`, beyond fp16: bitsandbytes makes
    int8 of that, after the load has made bf16 of the file's type."""
    if tensor.is_floating_point() and tensor.numel():
        low, high = tensor.aminmax()
        if not (low.isfinite() and high.isfinite()):
            n = int((~tensor.isfinite()).sum())
            found = f"{n:,} of {tensor.numel():,} values that are not finite numbers"
            raise HeadroomError(f"{name} holds {found}; download the model again")
        largest = max(-low, high)
        if is_quantized and largest and not (0 < (held := largest.bfloat16().half()) and held.isfinite()):
            raise HeadroomError(f"{name}: its largest value is {float(largest):.3g}, and int8 is made of fp16, which "
                                "holds 6e-08 to 65,504; choose bf16 for this model")  # fmt: skip
    return tensor


def _slice(handle: Any, name: str) -> Tensor:
    return handle.get_slice(name)[...]


def _read(entry: Entry) -> Tensor:
    """The values of a tensor in a `.bin` file."""
    import torch

    values = torch.empty(extent(entry.shape, entry.strides), dtype=getattr(torch, entry.dtype))
    into, n_read = memoryview(values.view(torch.uint8).numpy()), 0  # type: ignore[arg-type]
    with entry.file.open("rb", buffering=0) as handle:  # one each: transformers reads several at once, in threads
        handle.seek(entry.at)
        while n_read < len(into):
            n_more = handle.readinto(into[n_read:])
            if not n_more:
                raise OSError(f"{entry.file} is cut short")
            n_read += n_more
    return values.as_strided(entry.shape, entry.strides)


def _read_whole(file: Path) -> dict[str, LazyTensor]:
    """The tensors of a `.bin` file without a table of contents: all at once or not at all."""
    import torch

    try:
        with warnings.catch_warnings(action="ignore"):  # the error below describes the file
            whole = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # torch's own text tells how to read it unsafely
        raise HeadroomError(
            f"{file} holds more than weights or is cut short, and is not read; use the model in safetensors, or "
            "download it again"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise HeadroomError(f"{file} is damaged or cut short; download or copy it again") from error
    if not isinstance(whole, dict) or not any(isinstance(value, torch.Tensor) for value in whole.values()):
        raise HeadroomError(f"{file} does not hold a table of tensors by name; save only the model's state_dict")
    return {
        name: LazyTensor(name, tuple(value.shape), str(value.dtype).removeprefix("torch."), partial(_itself, value))
        for name, value in whole.items()
        if isinstance(name, str) and isinstance(value, torch.Tensor)
    }


def _itself(value: Tensor) -> Tensor:
    return value
