"""A GGUF file as an ordinary model folder: config.json, tokenizer and safetensors, written once next to the results,
under the digest of the file's content.

Each tensor is stored in a type that holds its values exactly, so that fp32 computes what transformers computes with the
same file. It is written as soon as it is read: no more than one is in memory. The folder is written under
another name, which is locked, and renamed at the end: one that was interrupted is not found, and removed by the next.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cache import Store
from cache.files import InvalidFile
from cache.typed_json import read_json
from engine.architecture.transformers_internals import causal_lm_class, empty_model, import_models
from engine.checkpoints.gguf_config import ROPE_FACTORS, read_gguf_config
from engine.checkpoints.gguf_header import ANOTHER, Header, StoredTensor, read_header
from engine.checkpoints.gguf_internals import names_of, tokenizer_of, values_of
from engine.checkpoints.hub import LEFT_BYTES, in_bytes
from engine.checkpoints.identity import file_digest, known_digest
from engine.checkpoints.names import model_name
from engine.checkpoints.validation import missing_tensors
from engine.errors import HeadroomError
from engine.files import free_on_disk, next_to_results, temporary_folder
from engine.progress import Progress, announce
from engine.records import version

if TYPE_CHECKING:
    import numpy as np

FOLDER, MAKING = "gguf", "making-"
WEIGHTS, ABOUT = "model.safetensors", "converted.json"
FORM = 1  # raised if what is written changes
NARROW = {"BF16": ("BF16", "bfloat16", 2), "F16": ("F16", "float16", 2)}  # kinds of tensors that need no fp32
WIDE = ("F32", "float32", 4)  # its name in safetensors and in torch, and its bytes


@dataclass(frozen=True)
class Converted:
    """What a folder was converted from.

    file: the path of the GGUF file when it was converted
    form, transformers: what another version may write otherwise
    """

    file: str
    form: int
    transformers: str


def conversions_folder(store: Store | None) -> Path:
    """The folder of all conversions."""
    return next_to_results(None if store is None else store.directory, FOLDER)


def unconverted(text: str, store: Store | None) -> Header | None:
    """The header of the GGUF file that `text` names, if it has to be converted first. None: it was, it is another
    model, or it cannot be read, which `identify` reports."""
    try:
        file = model_name(text).gguf
        return None if file is None or converted(file, store) is not None else read_header(file)
    except HeadroomError:
        return None


def converted(file: Path, store: Store | None) -> Path | None:
    """The folder that a GGUF file was converted into. None: it was not, or the file was not read since it changed."""
    try:
        digest = known_digest(file, store)
    except OSError:
        return None
    return None if digest is None else _whole(conversions_folder(store) / digest.hex())


def conversions(store: Store | None) -> list[str]:
    """The names of all models that were converted: their GGUF files, or the folders if the file is gone or another."""
    within = conversions_folder(store)
    found = []
    for folder in sorted(within.iterdir()) if within.is_dir() else []:
        if not folder.name.startswith(MAKING) and (about := _about(folder)) is not None:
            file = Path(about.file)
            found.append(about.file if file.is_file() and converted(file, store) == folder else str(folder))
    return found


def converted_bytes(header: Header) -> int:
    """What the folder takes on the disk, but for config and tokenizer."""
    return sum(math.prod(tensor.shape) * _type_of(tensor)[2] for tensor in header.tensors)


def describe_conversion(header: Header, store: Store | None) -> str:
    """Such as "1.1 GB to write to /cache/gguf, 70.2 GB free on the disk"."""
    within = conversions_folder(store)
    size, free = in_bytes(converted_bytes(header)), in_bytes(free_on_disk(within))
    return f"{size} to write to {within}, {free} free on the disk"


def convert(file: Path, store: Store | None) -> Generator[Progress[Path], None, None]:
    """Yields Progress in percent; the last value is the folder. HeadroomError: the file cannot be read here, or the
    disk is too small. Closing the generator leaves nothing."""
    header = read_header(file)
    yield Progress(0, 100, message=f"reading {file.name}")
    folder = conversions_folder(store) / file_digest(file, store).hex()
    if _whole(folder) is None:
        if refused := disk_refusal(header, store):
            raise HeadroomError(refused)
        announce.get()(f"{file.name} is converted once: {describe_conversion(header, store)}")
        yield from _write(header, folder)
    yield Progress(100, 100, folder)


def disk_refusal(header: Header, store: Store | None) -> str | None:
    """Why the disk cannot take the folder; None if it can."""
    within, due = conversions_folder(store), converted_bytes(header)
    if due + LEFT_BYTES <= (free := free_on_disk(within)):
        return None
    return (
        f"{header.file} takes {in_bytes(due)} converted, and {in_bytes(free)} is free on the disk of {within}; free "
        "some, or give another folder by --cache or HEADROOM_CACHE"
    )


def _write(header: Header, folder: Path) -> Iterator[Progress[Path]]:
    """Writes the folder, as a whole or not at all."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with temporary_folder(MAKING, folder.parent) as making:
            yield from _fill(header, making)
            shutil.rmtree(folder, ignore_errors=True)  # of another form
            with suppress(OSError):  # another process was faster
                making.rename(folder)
    except HeadroomError:
        raise
    except OSError as error:
        where = error.filename or folder.parent
        raise HeadroomError(f"{header.file} cannot be converted: {where}: {error.strerror or error}") from error
    except Exception as error:  # whatever transformers, tokenizers and gguf think of a foreign file
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise HeadroomError(f"{header.file} cannot be converted: {what}; {ANOTHER}") from error


def _fill(header: Header, folder: Path) -> Iterator[Progress[Path]]:
    import transformers

    import_models()
    transformers.utils.logging.set_verbosity_error()
    read = read_gguf_config(header)
    config = transformers.AutoConfig.for_model(**read)
    model_class = causal_lm_class(config)
    model = empty_model(model_class, config)
    names = names_of(header, model)
    _refuse_unless_whole(header, model, names)
    yield Progress(0, 100, message=f"reading the tokenizer of {header.file.name}")
    tokenizer_of(header, folder).save_pretrained(folder)
    config.architectures = [model_class.__name__]
    config.dtype = max((math.prod(tensor.shape), _type_of(tensor)[1]) for tensor in header.tensors)[1]
    config.save_pretrained(folder)
    stored = [tensor for tensor in header.tensors if tensor.name in names]
    with (folder / WEIGHTS).open("wb") as file:
        file.write(_table([(names[each.name], each, _shape_in(model, names[each.name])) for each in stored]))
        done, total = 0, converted_bytes(header)
        for tensor in stored:
            yield Progress(100 * done // total, 100, message=f"converting {header.file.name}", share=done / total)
            values = values_of(header, tensor, read)
            due = _shape_in(model, names[tensor.name])
            if values.shape != due:
                raise HeadroomError(f"{header.file} is not whole: {tensor.name} is {values.shape} and should be {due}; "
                                    "download or copy it again")  # fmt: skip
            file.write(_stored(values, tensor))
            done += math.prod(tensor.shape) * _type_of(tensor)[2]
        file.flush()
        os.fsync(file.fileno())
    about = Converted(str(header.file.resolve()), FORM, version("transformers"))
    (folder / ABOUT).write_text(json.dumps(asdict(about)))


def _refuse_unless_whole(header: Header, model: Any, names: Mapping[str, str]) -> None:
    """HeadroomError if a tensor is missing or has no place in the model: transformers would fill one with random
    numbers and leave the other out."""
    there = {names[tensor.name] for tensor in header.tensors if tensor.name in names}
    strangers = [tensor.name for tensor in header.tensors if tensor.name not in names and tensor.name != ROPE_FACTORS]
    missing = missing_tensors(model, there)
    if strangers:
        raise HeadroomError(f"{header.file} has the tensor {strangers[0]}, which has no place in a model of "
                            f"{header.architecture} of transformers; {ANOTHER}")  # fmt: skip
    if missing:
        raise HeadroomError(f"{header.file} is not whole: {min(missing)} is missing; download or copy it again")


def _shape_in(model: Any, name: str) -> tuple[int, ...]:
    return tuple(model.get_parameter(name).shape)


def _type_of(tensor: StoredTensor) -> tuple[str, str, int]:
    """The type that a tensor is stored in: its own if that holds its values. Those of quantized tensors are products of
    a scale, which need more digits than 16 bits have; norms are small, and changed when they are read."""
    return NARROW.get(tensor.kind, WIDE) if len(tensor.shape) > 1 else WIDE


def _table(tensors: list[tuple[str, StoredTensor, tuple[int, ...]]]) -> bytes:
    """The beginning of a safetensors file: the length of a JSON object, and in it type, shape and place by name."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor, shape in tensors:
        dtype, _, width = _type_of(tensor)
        end = at + math.prod(shape) * width
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    content = json.dumps(entries).encode()
    content += b" " * (-len(content) % 8)  # the values begin at a multiple of 8
    return len(content).to_bytes(8, "little") + content


def _stored(values: np.ndarray, tensor: StoredTensor) -> memoryview:
    """The bytes of the values in the type they are stored in."""
    import torch

    held = torch.from_numpy(values).to(getattr(torch, _type_of(tensor)[1])).contiguous()
    return memoryview(held.view(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


def _whole(folder: Path) -> Path | None:
    """The folder if it was written as this version writes it."""
    about = _about(folder)
    is_current = about is not None and (about.form, about.transformers) == (FORM, version("transformers"))
    return folder if is_current and (folder / WEIGHTS).is_file() and (folder / "config.json").is_file() else None


def _about(folder: Path) -> Converted | None:
    try:
        return read_json(folder / ABOUT, Converted)
    except (OSError, InvalidFile):
        return None
