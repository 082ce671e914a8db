"""What a weight file holds, read from its table of contents: names, shapes, types and places of its tensors.

No torch, and nothing of a file is executed. A `.bin` file is a zip of raw values and a pickle. Only the few calls that
rebuild a table of tensors are understood, and they make records. Everything else is rejected.
"""

import math
import pickle
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from cache.typed_json import decode_json
from engine.checkpoints.weight_files import not_weights
from engine.errors import HeadroomError

# torch's names of types: bytes of a value, as safetensors calls them, as the storages of a .bin file are called
TYPES = {"float64": (8, "F64", "DoubleStorage"), "float32": (4, "F32", "FloatStorage"),
         "float16": (2, "F16", "HalfStorage"), "bfloat16": (2, "BF16", "BFloat16Storage"),
         "int64": (8, "I64", "LongStorage"), "int32": (4, "I32", "IntStorage"), "int16": (2, "I16", "ShortStorage"),
         "int8": (1, "I8", "CharStorage"), "uint8": (1, "U8", "ByteStorage"), "bool": (1, "BOOL", "BoolStorage"),
         "float8_e4m3fn": (1, "F8_E4M3", ""), "float8_e5m2": (1, "F8_E5M2", "")}  # fmt: skip
OF_SAFETENSORS = {theirs: name for name, (_, theirs, _) in TYPES.items()}
OF_STORAGES = {theirs: name for name, (_, _, theirs) in TYPES.items() if theirs}
HEADER_BYTES = 100_000_000  # safetensors' own limit
BEFORE_ZIP = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # how torch.save began a file until version 1.6


@dataclass(frozen=True)
class Entry:
    """A tensor in a file: its values begin at byte `at`, `strides` count values, `dtype` is torch's name or unknown."""

    file: Path
    shape: tuple[int, ...]
    dtype: str
    at: int
    strides: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * TYPES.get(self.dtype, (4,))[0]


def contents(file: Path) -> Mapping[str, Entry] | None:
    """The tensors of a weight file by name; None for a `.bin` file without a table of contents (written by torch before
    1.6, or repacked). HeadroomError says what the file is instead, or that it is damaged."""
    try:
        stat = file.stat()
        return _contents(file, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    except OSError as error:
        raise HeadroomError(f"{file} cannot be read ({error.strerror}); look at its permissions") from error


@lru_cache(maxsize=64)
def _contents(file: Path, *stamp: int) -> Mapping[str, Entry] | None:
    """The same; `stamp` is what changes with the content."""
    if problem := not_weights(file):
        raise HeadroomError(f"{file} {problem}")
    found = _of_safetensors(file) if file.suffix == ".safetensors" else _of_zip(file)
    if found is not None and not found:
        raise HeadroomError(f"{file} holds no tensors; download or copy it again")
    return None if found is None else MappingProxyType(found)


def _of_safetensors(file: Path) -> dict[str, Entry]:
    size = file.stat().st_size
    broken = HeadroomError(f"{file} is damaged or cut short ({size:,} bytes); download or copy it again")
    with file.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        if size < 8 or length > size - 8 or length > HEADER_BYTES:
            if _is_zip(file):
                raise HeadroomError(
                    f"{file} is not a safetensors file but one written by torch.save; name it pytorch_model.bin"
                )
            raise broken
        try:
            header = decode_json(handle.read(length), dict[str, dict[str, Any]], file)
            header.pop("__metadata__", None)
            end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
            found = {name: _entry(file, entry, 8 + length) for name, entry in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise broken from error
    if 8 + length + end != size:
        raise broken
    return found


def _entry(file: Path, said: Mapping[str, Any], start: int) -> Entry:
    shape = _sizes(said["shape"])
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return Entry(file, shape, OF_SAFETENSORS.get(said["dtype"], "unknown"), start + said["data_offsets"][0], strides)


def _of_zip(file: Path) -> dict[str, Entry] | None:
    again = "download or copy it again"
    if not _is_zip(file):
        with file.open("rb") as handle:
            head = handle.read(len(BEFORE_ZIP))
        if head == BEFORE_ZIP:
            return None
        safe = head[8:9] == b"{" and int.from_bytes(head[:8], "little") < file.stat().st_size
        what = "is a safetensors file: name it model.safetensors" if safe else f"is damaged or cut short; {again}"
        raise HeadroomError(f"{file} {what}")
    damaged = HeadroomError(f"{file} is damaged; {again}")
    try:
        with zipfile.ZipFile(file) as members, file.open("rb") as handle:
            names = [name for name in members.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
            inside = {member.filename: member for member in members.infolist()}
            if any(name.split("/")[1:2] == ["code"] or name.endswith("/constants.pkl") for name in inside):
                raise HeadroomError(
                    f"{file} is a TorchScript archive, a program with its weights, and is not run; use the model in "
                    "safetensors, or save its state_dict alone"
                )
            if len(names) != 1:
                raise HeadroomError(f"{file} is a zip archive that torch.save did not write; {again}")
            if any(member.compress_type != zipfile.ZIP_STORED for member in inside.values()):
                return None
            root = names[0].removesuffix("data.pkl")
            if f"{root}byteorder" in inside and members.read(f"{root}byteorder") != b"little":
                return None
            if inside[names[0]].file_size > HEADER_BYTES:
                raise damaged
            with members.open(names[0]) as pickled:
                table = _table(file, _Reader(file, pickled).load())

            def place(record: _Tensor) -> Entry:
                member = inside[f"{root}data/{record.storage.key}"]
                n_bytes, n_values = TYPES[record.dtype][0], extent(record.shape, record.strides)
                if (record.offset + n_values) * n_bytes > member.file_size:
                    raise damaged
                handle.seek(member.header_offset + 26)
                behind = handle.read(4)  # the lengths of its name and of what else stands in front of its values
                start = member.header_offset + 30 + sum(int.from_bytes(behind[i : i + 2], "little") for i in (0, 2))
                return Entry(file, record.shape, record.dtype, start + record.offset * n_bytes, record.strides)

            return {name: place(record) for name, record in table.items()}
    except (zipfile.BadZipFile, pickle.UnpicklingError, EOFError, ValueError, KeyError, TypeError, AttributeError,
            IndexError, OverflowError, RecursionError, MemoryError, NotImplementedError) as error:  # fmt: skip
        raise damaged from error


def _is_zip(file: Path) -> bool:
    try:
        return zipfile.is_zipfile(file)
    except zipfile.BadZipFile:  # one that says it is the second disk of several
        return False


class _Storage(NamedTuple):
    key: str
    dtype: str


class _Tensor(NamedTuple):
    storage: _Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Table(dict[Any, Any]):
    """A table of the file; attributes that torch adds to it are dropped."""

    def __setstate__(self, state: Any) -> None:
        pass


class _Call:
    """What a pickle may call. It holds nothing that a pickle could set, so that none reaches the functions."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)

    def __setstate__(self, state: Any) -> None:
        pass


class _Reader(pickle._Unpickler):  # type: ignore[name-defined]  # the one whose memo is a table: no index makes it large
    """Reads the pickle of a `.bin` file into tables and `_Tensor` records."""

    def __init__(self, file: Path, pickled: Any) -> None:
        super().__init__(pickled)
        self._file = file

    def find_class(self, module: str, name: str) -> Any:
        whole = f"{module}.{name}"
        if whole in _CALLS:
            return _Call(_CALLS[whole])
        if module in ("torch", "torch.cuda", "torch.storage") and name.endswith("Storage"):
            return OF_STORAGES.get(name, "unknown")
        if module == "torch" and name in TYPES:
            return name
        raise HeadroomError(
            f"{self._file} holds more than weights ({whole[:80]}) and is not read; use the model in safetensors"
        )

    def persistent_load(self, pid: Any) -> _Storage:
        what, dtype, key, *_ = pid
        if what != "storage" or not isinstance(key, str) or not isinstance(dtype, str):
            raise pickle.UnpicklingError("no storage")
        return _Storage(key, dtype)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *more: Any) -> _Tensor:
    dtype = next((each for each in more if isinstance(each, str)), storage.dtype)  # storages of plain bytes name theirs
    if not isinstance(storage, _Storage) or len(strides) != len(shape) or _sizes([offset]) != (offset,):
        raise pickle.UnpicklingError("no tensor")
    return _Tensor(storage, dtype, offset, _sizes(shape), _sizes(strides))


# what torch's own weights-only reader understands too
_CALLS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *more: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, *more: data,
    "torch._tensor._rebuild_from_type_v2": lambda make, kind, arguments, *more: make(*arguments),
    "torch.nn.parameter.Parameter": lambda data, *more: data,
    "torch.Tensor": lambda *more: None,
    "torch.Size": lambda sizes=(): tuple(sizes),
    "torch.device": lambda *more: None,
    "collections.OrderedDict": lambda *more: _Table(*more),
    "collections.defaultdict": lambda *more: _Table(),
    "collections.Counter": lambda *more: _Table(*more),
    "builtins.set": lambda *more: None,
    "builtins.complex": lambda *more: None,
    "builtins.bytearray": lambda *more: None,
    "_codecs.encode": lambda *more: None,
}


def _table(file: Path, found: Any) -> dict[str, _Tensor]:
    """The entries of a state dict that are tensors; HeadroomError says what it is instead."""
    advice = "save the model's state_dict alone, best as safetensors"
    if not isinstance(found, dict):
        what = "one tensor" if isinstance(found, _Tensor) else f"a value of type {type(found).__name__}"
        raise HeadroomError(f"{file} holds {what}, not a table of tensors by name; {advice}")
    if {"state", "param_groups"} <= found.keys():
        raise HeadroomError(f"{file} holds the state of an optimizer, not the weights of a model; {advice}")
    table = {name: each for name, each in found.items() if isinstance(name, str) and isinstance(each, _Tensor)}
    for key, value in found.items() if not table else ():
        if isinstance(value, dict) and any(isinstance(each, _Tensor) for each in value.values()):
            raise HeadroomError(f"the weights in {file} lie under the key {str(key)[:80]!r}; {advice}")
    return table


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """How many values lie from the first to the last of a tensor, which may be a view."""
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if math.prod(shape) else 0


def _sizes(values: Any) -> tuple[int, ...]:
    """Whole numbers from 0 on, or ValueError."""
    if not all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 2**62 for each in values):
        raise ValueError("no sizes")
    return tuple(values)
