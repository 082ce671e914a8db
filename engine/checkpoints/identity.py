"""What a model folder holds, read from its files alone: `Identity` with shape, size and content digest.

Without torch, but for a tokenizer that has to be loaded once to see what it puts in front of a text.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from cache import Store
from engine.architecture.family import family_of, is_tied, shape_of
from engine.architecture.model_config import ModelConfig, n_parameters
from engine.checkpoints.compact_checkpoint import is_small, stock_config
from engine.checkpoints.tensor_index import Entry, contents
from engine.checkpoints.tokenizer import TokenizerReading, reading_of
from engine.checkpoints.validation import refuse_other_layers
from engine.checkpoints.weight_files import not_weights, read_json, weight_files
from engine.errors import HeadroomError
from engine.shapes import ModelShape

PRECISIONS = ("int8", "bf16", "fp32")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "tokenizer_config.json",
                   "special_tokens_map.json", "added_tokens.json")  # fmt: skip
TOKENIZER_SETS = (("tokenizer.json",), ("vocab.json", "merges.txt"), ("tokenizer.model",))


@dataclass(frozen=True)
class Identity:
    """A model as its files say it is. Same digest = same config, tokenizer and weights, whatever the folder's name.

    `largest_bytes` are what the largest tensor takes as it is stored, in the type `stored_as`; `reading` is how its
    tokenizer reads texts.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    family: str
    shape: ModelShape
    digest: str
    tokenizer_digest: str
    n_params: int
    largest_bytes: int
    stored_as: str
    reading: TokenizerReading

    @property
    def default_bos(self) -> bool:
        """Whether the tokenizer puts anything in front of a text."""
        return bool(self.reading.beginning)

    @cached_property
    def model_config(self) -> ModelConfig:
        """Its config with shape and parts."""
        return ModelConfig(self.name, self.config, "", self.largest_bytes, self.stored_as)

    def weight_bytes(self, precision: str) -> int:
        """Bytes of the weights in memory in that precision."""
        return self.model_config.parts.n_bytes(precision)


def identify_folder(name: str, folder: Path, commit: str | None, store: Store | None = None) -> Identity:
    """Identity of a checkpoint folder; `commit` (of the hub) spares hashing the weights.

    `store` remembers a weight file's digest under its path, size and time, so that a big folder is hashed once.
    HeadroomError names the file that is missing, unreadable or cut short.
    """
    if not (folder / "config.json").exists() and (folder / "adapter_config.json").exists():
        raise HeadroomError(f"{folder} is an adapter, no model; merge it into its base model and save the whole")
    config = read_json(folder / "config.json", f"{name} is not a model folder")
    said, config = config, stock_config(config, str(folder))
    family = family_of(config)
    shape = shape_of(config)
    if not any(all((folder / file).is_file() for file in files) for files in TOKENIZER_SETS):
        raise HeadroomError(
            f"{folder} has no tokenizer (tokenizer.json, tokenizer.model, or vocab.json and merges.txt); add its files"
        )
    weights = weight_files(folder)
    tensors = _tensors(weights, None if is_small(said) else shape)
    if tensors is None:
        largest_bytes, stored_as = sum(file.stat().st_size for file in weights), "whole"  # all is read at once
    else:
        largest_bytes, stored_as = max((entry.n_bytes, entry.dtype) for entry in tensors.values())
    if tensors is None or is_small(said):  # which is spread out when it is loaded
        n_params = ModelConfig(name, config).parts.n_params
    else:
        n_params = n_parameters([(name, entry.shape) for name, entry in tensors.items()], is_tied(config))

    tokenizer = hashlib.blake2b(digest_size=16)
    for file in TOKENIZER_FILES:
        if (folder / file).is_file():
            if problem := not_weights(folder / file):
                raise HeadroomError(f"{folder / file} {problem}")
            tokenizer.update(file.encode() + (folder / file).read_bytes())
    reading = reading_of(folder, config, tokenizer.hexdigest(), store)
    tokenizer.update(reading.mark.encode())
    whole = hashlib.blake2b(tokenizer.digest() + json.dumps(said, sort_keys=True).encode(), digest_size=16)
    for file in weights if commit is None else []:
        whole.update(file.name.encode() + file_digest(file, store))
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
        largest_bytes=largest_bytes,
        stored_as=stored_as,
        reading=reading,
    )


def _tensors(weights: list[Path], shape: ModelShape | None) -> dict[str, Entry] | None:
    """The tensors in the files by name; None where one has no table of contents. HeadroomError where two files hold the
    same one, or they are of other layers than `shape` has (None: a layer may have none at all)."""
    found: dict[str, Entry] = {}
    for file in weights:
        inside = contents(file)
        if inside is None:
            return None
        for name in inside.keys() & found.keys():
            raise HeadroomError(
                f"{name} is in two files, {found[name].file.name} and {file.name}; keep the one that belongs here"
            )
        found |= inside
    if shape is not None:
        refuse_other_layers(str(weights[0].parent), found, shape.n_layers)
    return found


def file_digest(file: Path, store: Store | None) -> bytes:
    """Digest of a file's content, taken once in a process and once for a store."""
    if (known := known_digest(file, store)) is not None:
        return known
    stat = file.stat()
    digest = _content_digest(file.resolve(), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    if store is not None:
        store.put(_digest_key(file), digest)
    return digest


def known_digest(file: Path, store: Store | None) -> bytes | None:
    """The same as the store remembers it; None if it does not."""
    known = store.get(_digest_key(file)) if store is not None else None
    return known if known is not None and len(known) == 16 else None


def _digest_key(file: Path) -> str:
    stat = file.stat()
    memo = hashlib.blake2b(f"{file.resolve()}|{stat.st_size}|{stat.st_mtime_ns}".encode(), digest_size=20).hexdigest()
    return f"file-digest/{memo}"


@lru_cache(maxsize=1000)
def _content_digest(file: Path, *stamp: int) -> bytes:
    """The digest; `stamp` is what changes with the content."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, partial(hashlib.blake2b, digest_size=16)).digest()
