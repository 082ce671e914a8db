"""What a model folder holds, read from its files alone: `Identity` with shape, size and content digest, no torch."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cache import Store
from engine.errors import HeadroomError
from engine.models.architectures import family_of, shape_of
from engine.shapes import ModelShape

PRECISIONS = ("int8", "bf16", "fp32")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "tokenizer_config.json",
                   "special_tokens_map.json", "added_tokens.json")  # fmt: skip
TOKENIZER_SETS = (("tokenizer.json",), ("vocab.json", "merges.txt"), ("tokenizer.model",))
READ_BYTES = 1 << 24


@dataclass(frozen=True)
class Identity:
    """A model as its files say it is. Same digest = same config, tokenizer and weights, whatever the folder's name.

    `n_quantised` counts the parameters that int8 stores in one byte (matrices of the layers); embeddings, norms and
    biases stay in 16 bits.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    family: str
    shape: ModelShape
    digest: str
    tokenizer_digest: str
    n_params: int
    n_quantised: int
    has_safetensors: bool
    default_bos: bool

    def weight_bytes(self, precision: str) -> int:
        """Bytes of the weights in memory in that precision."""
        if precision == "int8":
            return self.n_quantised + 2 * (self.n_params - self.n_quantised)
        return self.n_params * (4 if precision == "fp32" else 2)


def identify_folder(name: str, folder: Path, commit: str | None, store: Store | None = None) -> Identity:
    """Identity of a checkpoint folder; `commit` (of the hub) spares hashing the weights.

    `store` remembers a weight file's digest under its path, size and time, so that a big folder is hashed once.
    HeadroomError names the file that is missing, unreadable or cut short.
    """
    config = _read_json(folder / "config.json", f"{name} is not a model folder")
    family = family_of(config)
    shape = shape_of(config)
    if not any(all((folder / file).is_file() for file in files) for files in TOKENIZER_SETS):
        raise HeadroomError(f"{folder} has no tokenizer (tokenizer.json, or vocab.json and merges.txt); add its files")
    weights = sorted(folder.glob("*.safetensors"))
    has_safetensors = bool(weights)
    if not has_safetensors:
        weights = sorted(folder.glob("pytorch_model*.bin"))
    if not weights:
        raise HeadroomError(f"{folder} has no weights (*.safetensors or pytorch_model*.bin); add them")
    missing = _indexed(folder, has_safetensors) - {file.name for file in weights}
    if missing:
        raise HeadroomError(f"{folder} lacks weight file {min(missing)}; download the model again")
    if has_safetensors:
        n_params, n_quantised = _count(weights, bool(config.get("tie_word_embeddings", True)))
    else:
        n_params, n_quantised = _count_from_size(weights, config, shape)

    tokenizer = hashlib.blake2b(digest_size=16)
    for file in TOKENIZER_FILES:
        if (folder / file).is_file():
            tokenizer.update(file.encode() + (folder / file).read_bytes())
    whole = hashlib.blake2b(tokenizer.digest() + json.dumps(config, sort_keys=True).encode(), digest_size=16)
    for file in weights if commit is None else []:
        whole.update(file.name.encode() + _file_digest(file, store))
    if commit is not None:
        whole.update(f"{name}@{commit}".encode())
    return Identity(
        name=name,
        folder=folder,
        config=config,
        family=family.name,
        shape=shape,
        digest=whole.hexdigest(),
        tokenizer_digest=tokenizer.hexdigest(),
        n_params=n_params,
        n_quantised=n_quantised,
        has_safetensors=has_safetensors,
        default_bos=_default_bos(folder, config),
    )


def safetensors_header(file: Path) -> dict[str, Any]:
    """The header of a safetensors file as a dict; HeadroomError when the file is not whole."""
    size = file.stat().st_size
    broken = HeadroomError(f"{file} is damaged or cut short ({size:,} bytes); download or copy it again")
    with file.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        if size < 8 or length > size - 8 or length > 100_000_000:
            raise broken
        try:
            header = json.loads(handle.read(length))
            header.pop("__metadata__", None)
            end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise broken from error
    if 8 + length + end != size:
        raise broken
    return header


def _count(weights: list[Path], tied: bool) -> tuple[int, int]:
    """(parameters, parameters int8 stores in one byte) from safetensors headers."""
    n_params = n_quantised = 0
    for file in weights:
        for name, entry in safetensors_header(file).items():
            if tied and name == "lm_head.weight":
                continue  # the embedding once more
            count = math.prod(entry["shape"])
            n_params += count
            if len(entry["shape"]) == 2 and not any(part in name for part in ("embed", "wte", "wpe", "lm_head")):
                n_quantised += count
    return n_params, n_quantised


def _count_from_size(weights: list[Path], config: Mapping[str, Any], shape: ModelShape) -> tuple[int, int]:
    """The same for pickled checkpoints, whose headers cannot be read safely: from file sizes, in 4 or 2 bytes a
    parameter, whichever is nearer to what a model of this shape has."""
    n_embedded = (1 if config.get("tie_word_embeddings", True) else 2) * shape.d_model * shape.n_vocab
    n_heads = 2 * shape.d_head * (shape.n_heads + shape.n_key_value_heads)
    n_ffn = (3 if config["model_type"] == "llama" else 2) * shape.d_mlp
    n_matrices = shape.n_layers * shape.d_model * (n_heads + n_ffn)
    size = sum(file.stat().st_size for file in weights)
    n_params = size // (4 if size > 2.8 * (n_embedded + n_matrices) else 2)
    return n_params, min(n_params, n_matrices)


def _indexed(folder: Path, has_safetensors: bool) -> set[str]:
    """File names that a sharded checkpoint's index asks for."""
    index = folder / ("model.safetensors.index.json" if has_safetensors else "pytorch_model.bin.index.json")
    if not index.is_file():
        return set()
    weight_map = _read_json(index, f"{folder.name} has a damaged weight index").get("weight_map", {})
    return set(weight_map.values()) if isinstance(weight_map, dict) else set()


def _file_digest(file: Path, store: Store | None) -> bytes:
    """Digest of a file's content, taken once in a process and once for a store."""
    stat = file.stat()
    memo = hashlib.blake2b(f"{file.resolve()}|{stat.st_size}|{stat.st_mtime_ns}".encode(), digest_size=20).hexdigest()
    key = f"file-digest/{memo}"
    known = store.get(key) if store is not None else None
    if known is not None and len(known) == 16:
        return known
    digest = _content_digest(file.resolve(), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    if store is not None:
        store.put(key, digest)
    return digest


@lru_cache(maxsize=1000)
def _content_digest(file: Path, *stamp: int) -> bytes:
    """The digest; `stamp` is what changes with the content."""
    digest = hashlib.blake2b(digest_size=16)
    with file.open("rb") as handle:
        while block := handle.read(READ_BYTES):
            digest.update(block)
    return digest.digest()


def _read_json(file: Path, problem: str) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise HeadroomError(
            f"{problem}: {file} is missing; give a folder that transformers' save_pretrained wrote"
        ) from error
    except (OSError, ValueError) as error:
        raise HeadroomError(f"{problem}: {file} cannot be read as JSON; download or copy it again") from error
    if not isinstance(value, dict):
        raise HeadroomError(f"{problem}: {file} holds no JSON object; download or copy it again")
    return value


def _default_bos(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether the tokenizer puts a beginning-of-sequence token in front by itself: always for OPT, else as it says."""
    if config.get("model_type") == "opt":
        return True
    file = folder / "tokenizer_config.json"
    return bool(_read_json(file, "the tokenizer is damaged").get("add_bos_token")) if file.is_file() else False
