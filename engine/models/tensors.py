"""The tensors of a checkpoint, each read from disk only when it is asked for, whatever kind its files are of.

Reading, not mapping: the pages of a mapped file count as the process's memory until the end of a load, on top of what
was made of them. Nothing of a file is ever executed.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import HeadroomError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Stored:
    """A tensor that still lies in its file; `stored[...]` reads it, as of a slice of safetensors."""

    name: str
    read: Callable[[], Tensor]

    def __getitem__(self, index: Any) -> Tensor:
        return finite(self.name, self.read())[index]


@contextmanager
def stored_tensors(folder: Path, is_tied: bool) -> Iterator[dict[str, Stored]]:
    """The tensors of a folder's weight files by name, readable while the context is open.

    `is_tied`: the unembedding is the embedding, so that one that lies at the same place in a file is left out.
    pickle.UnpicklingError: a .bin file that holds more than weights.
    """
    from safetensors import safe_open

    with ExitStack() as opened:
        found: dict[str, Stored] = {}
        for file in sorted(folder.glob("*.safetensors")):
            handle = opened.enter_context(safe_open(str(file), framework="pt", device="cpu", backend="pread"))
            for name in handle.keys():  # noqa: SIM118
                found[name] = Stored(name, partial(_whole, handle.get_slice(name)))
        for file in [] if found else sorted(folder.glob("pytorch_model*.bin")):
            found |= _pickled(file, is_tied)
        yield found


def finite(name: str, tensor: Tensor) -> Tensor:
    """The tensor; HeadroomError where it holds a value that is no number."""
    if tensor.is_floating_point() and tensor.numel():
        low, high = tensor.aminmax()
        if not (low.isfinite() and high.isfinite()):
            raise HeadroomError(f"{name} holds values that are not finite; download the model again")
    return tensor


def _whole(part: Any) -> Tensor:
    return part[...]


def _pickled(file: Path, is_tied: bool) -> Mapping[str, Stored]:
    """The tensors of a file that torch.save wrote. Its pickle is read by torch's weights_only reader, without the
    values: these lie behind it, uncompressed, a storage each."""
    import torch

    if not _is_plain_zip(file):  # the format before torch 1.6: all at once or not at all
        whole = torch.load(file, map_location="cpu", weights_only=True)
        return {name: Stored(name, partial(_whole, value)) for name, value in _tensors(whole).items()}
    empty = _tensors(torch.load(file, map_location="meta", weights_only=True))
    places = {name: (_offset(tensor), tensor.storage_offset()) for name, tensor in empty.items()}
    embedding = next((places[name] for name in places if name.endswith(("embed_tokens.weight", "wte.weight"))), None)
    return {
        name: Stored(name, partial(_read, file, _offset(tensor), tensor))
        for name, tensor in empty.items()
        if not (is_tied and name == "lm_head.weight" and places[name] == embedding)
    }


def _read(file: Path, offset: int, like: Tensor) -> Tensor:
    """The values of a tensor whose storage begins at that byte of the file."""
    import torch

    # a tensor may be a view: its elements lie between the first and the last that its strides reach
    size = 1 + sum((n - 1) * step for n, step in zip(like.shape, like.stride(), strict=True)) if like.numel() else 0
    values = torch.empty(size, dtype=like.dtype)
    into, n_read = memoryview(values.view(torch.uint8).numpy()), 0  # type: ignore[arg-type]
    with file.open("rb", buffering=0) as handle:  # one each: transformers reads several tensors at once, in threads
        handle.seek(offset + int(like.storage_offset()) * like.element_size())
        while n_read < len(into):
            n_more = handle.readinto(into[n_read:])
            if not n_more:
                raise OSError(f"{file} is cut short")
            n_read += n_more
    return values.as_strided(like.shape, like.stride())


def _tensors(found: Any) -> dict[str, Tensor]:
    """The entries of a state dict that are tensors."""
    import torch

    if not isinstance(found, dict):
        raise ValueError("its .bin checkpoint is no table of tensors")
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def _offset(tensor: Tensor) -> int:
    """Where the storage of a tensor without values begins in its file; torch leaves that on it."""
    return tensor.untyped_storage()._checkpoint_offset  # type: ignore[attr-defined]


def _is_plain_zip(file: Path) -> bool:
    """Whether a file is a zip file with nothing compressed, as torch.save writes them."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as members:
        return all(member.compress_type == zipfile.ZIP_STORED for member in members.infolist())
