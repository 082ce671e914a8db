"""What a GGUF file says of itself, read from its first bytes without torch: `Header`, or one line that says why the
file cannot be read here.

The layout is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: numbers of fixed width, texts and lists
with their length in front. The libraries that read the weights later trust a file; what they would stumble over, or
read as something else, is refused here.
"""

import math
import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from engine.checkpoints.names import MAGIC
from engine.checkpoints.weight_files import not_weights
from engine.errors import HeadroomError

VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9
TOKENS = "tokenizer.ggml.tokens"
MOST_KEPT = 1_000  # items of a list: those of tokens are only counted
MOST_DIMENSIONS = 4
ALIGNMENT = 32  # of the tensors, if a file does not state it
PLAIN = {"F32": 4, "F16": 2, "BF16": 2}  # bytes of a value that is stored as it is
# what `general.architecture` may say: what transformers can make a model of from a GGUF file, of the families here
ARCHITECTURES = ("llama", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "stablelm", "starcoder2", "gpt2", "bloom",
                 "falcon")  # fmt: skip
ENCODERS = re.compile(r".*bert.*|t5(encoder)?|gemma-embedding|.*embed.*")
SHARD = re.compile(r".*-\d{5}-of-(\d{5})\.gguf", re.IGNORECASE)
ANOTHER = "use the model's folder or its id on the Hub"


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a GGUF file.

    name: as llama.cpp calls it
    shape: as torch has it
    kind: the type that it is stored in, such as Q4_K
    at: the byte of the file at which it begins
    n_bytes: what it takes in the file
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    at: int
    n_bytes: int


@dataclass(frozen=True)
class Header:
    """What a GGUF file holds.

    file: where it is
    fields: what it says of the model, by key; of a list of more than MOST_KEPT items its length
    counted: the keys of these lists
    tensors: its tensors in the order of the file
    n_bytes: the size of the file
    """

    file: Path
    fields: Mapping[str, Any]
    counted: frozenset[str]
    tensors: tuple[StoredTensor, ...]
    n_bytes: int

    @property
    def architecture(self) -> str:
        return str(self.fields.get("general.architecture", ""))

    @property
    def n_tokens(self) -> int:
        tokens = self.fields[TOKENS]
        return len(tokens) if isinstance(tokens, list) else int(tokens)

    def field(self, name: str) -> Any:
        """A field of this architecture, such as `rope.freq_base`; None if the file does not state it."""
        return self.fields.get(f"{self.architecture}.{name}")


def read_header(file: Path) -> Header:
    """The header of a GGUF file that can be read here; HeadroomError says what else it is."""
    try:
        stat = file.stat()
        return _read(file, stat.st_size, stat.st_mtime_ns, stat.st_ino)
    except OSError as error:
        raise HeadroomError(f"{file} cannot be read ({error.strerror}); look at its permissions") from error


@lru_cache(maxsize=8)
def _read(file: Path, n_bytes: int, *stamp: int) -> Header:
    """The header; `stamp` is what changes with the content."""
    with file.open("rb") as handle:
        is_marked = handle.read(len(MAGIC)) == MAGIC
    if not is_marked:
        why = not_weights(file) or "is not a GGUF file, which begins with GGUF; download or copy it again"
        raise HeadroomError(f"{file} {why}")
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        reader = _Reader(content)
        try:
            return _parsed(file, reader, n_bytes)
        except (struct.error, UnicodeDecodeError, KeyError, _Damaged) as error:
            raise HeadroomError(
                f"{file} is damaged or cut short: what stands at byte {reader.at:,} of {n_bytes:,} cannot be read; "
                "download or copy it again"
            ) from error


def _parsed(file: Path, reader: "_Reader", n_bytes: int) -> Header:
    reader.take(len(MAGIC))
    version, n_tensors, n_fields = reader.numbers("IQQ")
    if version & 0xFFFF == 0:
        raise HeadroomError(f"{file} is a big-endian GGUF file; get the little-endian one, or {ANOTHER}")
    if version not in VERSIONS:
        raise HeadroomError(f"{file} is a GGUF file of version {version}, not 2 or 3; get a newer one, or {ANOTHER}")
    fields, counted = {}, set()
    for _ in range(n_fields):
        key, (kind,) = reader.text(), reader.numbers("I")
        fields[key] = reader.value(kind)
        if kind == LIST and not isinstance(fields[key], list):
            counted.add(key)
    entries = [_entry(reader) for _ in range(n_tensors)]
    alignment = fields.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0:
        raise _Damaged
    begin = -(-reader.at // alignment) * alignment
    header = Header(
        file, fields, frozenset(counted), tuple(replace(each, at=begin + each.at) for each in entries), n_bytes
    )
    for problem in _problems(header):
        raise HeadroomError(f"{file} {problem}")
    if (due := max(tensor.at + tensor.n_bytes for tensor in header.tensors)) > n_bytes:
        raise HeadroomError(
            f"{file} is cut short: its tensors end at byte {due:,} and the file at {n_bytes:,}; download or copy it "
            "again"
        )
    return header


def _entry(reader: "_Reader") -> StoredTensor:
    """The next tensor of the table; `at` counts from the end of the table."""
    name = reader.text()
    (n_dimensions,) = reader.numbers("I")
    if n_dimensions > MOST_DIMENSIONS:
        raise _Damaged
    shape = tuple(reversed(reader.numbers(f"{n_dimensions}Q")))
    number, offset = reader.numbers("IQ")
    kind, block, block_bytes = type_sizes().get(number, (f"type {number}", 1, 0))
    if shape and shape[-1] % block:
        raise _Damaged
    return StoredTensor(name, shape, kind, offset, math.prod(shape) // block * block_bytes)


def _problems(header: Header) -> Iterator[str]:
    """Why a file is not a whole language model that can be read here, the most telling first."""
    what, architecture, named = (
        header.fields.get("general.type"),
        header.architecture,
        SHARD.fullmatch(header.file.name),
    )
    n_shards = header.fields.get("split.count", int(named[1]) if named else 0)
    if what == "adapter" or any("lora_" in tensor.name for tensor in header.tensors[:4]):
        yield f"is an adapter (LoRA), which needs its base model: merge the two, or {ANOTHER}"
    if what == "mmproj" or architecture == "clip":
        yield "is the vision projector of a model that reads images; give the GGUF file of its language model"
    if what == "imatrix" or (not header.tensors and n_shards < 2):
        yield "holds no weights of a model; give the GGUF file that does"
    if n_shards > 1:
        yield (f"is one of {n_shards} files that the model is split into: join them by llama.cpp's "
               "`llama-gguf-split --merge FIRST JOINED.gguf`, and give JOINED.gguf")  # fmt: skip
    if not architecture:
        yield f"does not say which architecture its model has; {ANOTHER}"
    is_causal = header.field("attention.causal")
    if ENCODERS.fullmatch(architecture) or header.field("pooling_type") or is_causal is False:
        yield "is an embedding model or an encoder, not one that continues text; give a language model"
    if architecture not in ARCHITECTURES:
        yield (f"has the architecture {architecture[:40]!r}, which transformers cannot read from a GGUF file or "
               f"Headroom does not support (those that work: {', '.join(ARCHITECTURES)}); {ANOTHER}")  # fmt: skip
    if header.field("expert_count"):
        yield f"is a mixture of {header.field('expert_count')} experts, which is not supported; use a dense model"
    unread = sorted({tensor.kind for tensor in header.tensors if not is_read(tensor.kind)})
    if unread:
        yield (f"has tensors of type {', '.join(unread)}, which the library gguf cannot read; get the file in another "
               "quantization, such as Q4_K_M or Q8_0")  # fmt: skip
    names = [tensor.name for tensor in header.tensors]
    if len({*names}) < len(names):
        yield "holds two tensors of the same name; download it again"
    if not isinstance(header.fields.get(TOKENS), (list, int)):
        yield f"has no tokenizer; {ANOTHER}"


@cache
def type_sizes() -> dict[int, tuple[str, int, int]]:
    """(name, values in a block, bytes of a block) of each type of tensor, by its number in files."""
    from gguf.constants import GGML_QUANT_SIZES

    return {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


@cache
def is_read(kind: str) -> bool:
    """Whether the library can compute the values of this type: it is asked for those of an empty tensor."""
    import gguf
    import numpy as np

    if kind in PLAIN:
        return True
    sizes = {name: block_bytes for name, _, block_bytes in type_sizes().values()}
    try:
        gguf.dequantize(np.zeros((1, sizes[kind]), np.uint8), gguf.GGMLQuantizationType[kind])
    except (KeyError, NotImplementedError):
        return False
    return True


class _Damaged(Exception):
    """A number in the file that cannot be."""


class _Reader:
    """Reads a file from its beginning. struct.error or _Damaged where it ends."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content, self.at = content, 0

    def take(self, n_bytes: int) -> bytes:
        if n_bytes > len(self.content) - self.at:
            raise _Damaged
        self.at += n_bytes
        return self.content[self.at - n_bytes : self.at]

    def numbers(self, layout: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{layout}", self.content, self.at)
        self.at += struct.calcsize(f"<{layout}")
        return found

    def text(self) -> str:
        return self.take(*self.numbers("Q")).decode()

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            return self.numbers(SCALARS[kind])[0]
        inner, n_items = self.numbers("IQ")
        if inner == LIST and depth:
            raise _Damaged
        if n_items <= MOST_KEPT:
            return [self.value(inner, depth + 1) for _ in range(n_items)]
        if inner in SCALARS:
            width = struct.calcsize(f"<{SCALARS[inner]}")
            if n_items * width > len(self.content) - self.at:
                raise _Damaged
            self.at += n_items * width
        else:
            for _ in range(n_items):
                if inner == TEXT:
                    self.skip_text()
                else:
                    self.value(inner, depth + 1)
        return n_items

    def skip_text(self) -> None:
        (n_bytes,) = self.numbers("Q")
        if n_bytes > len(self.content) - self.at:
            raise _Damaged
        self.at += n_bytes
