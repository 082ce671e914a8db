"""Which files of a folder hold a model's weights: those of the index; else `model.safetensors`; else the one `.bin`.
A folder with none of these is named after the one GGUF file in it (`engine.checkpoints.names`).

Nothing else counts, is read or digested: adapters, variants such as model.fp16.safetensors, shards that an older
split left behind, files in folders below.
"""

import math
import re
from pathlib import Path
from typing import Any

from cache import typed_json
from cache.typed_json import InvalidFile
from engine.errors import HeadroomError

KINDS = (("model", ".safetensors"), ("pytorch_model", ".bin"))
JSON_BYTES = 200_000_000  # more than any config, index or tokenizer has
# what may lie there instead, by name: the first that fits is said
OTHERS = (
    (r"adapter_model\..*", "is an adapter, which needs its base model: merge them and save the whole model"),
    (r"(pytorch_)?model(-\d+-of-\d+)?\.(?!safetensors|bin)[^.]+\.(safetensors|bin)",
     "is a variant: rename it {plain}, or save the model without one"),
    (r".*\.gguf", "is a GGUF file: give that file as the model"),
    (r"(flax_model|tf_model|rust_model)\..*|.*\.(h5|msgpack|ot|ckpt|onnx)",
     "is for another library: save the model from transformers in torch"),
    (r"(bf16_)?zero_pp_rank_.*|mp_rank_.*|global_step\d+",
     "is of DeepSpeed: run `python zero_to_fp32.py . .`, the script that DeepSpeed wrote next to it"),
    (r".*\.distcp|pytorch_model_fsdp_\d+",
     "is of FSDP: run `accelerate merge-weights` and save the whole model from transformers"),
    (r"consolidated\..*|params\.json|tekken\.json",
     "is in the format of Meta and Mistral AI: use the model in the format of transformers"),
    (r"(optimizer|scheduler|rng_state|training_args|trainer_state).*",
     "belongs to training: save the model itself with save_pretrained"),
    (r".*\.safetensors", "has a name that transformers does not give: rename it model.safetensors if it is the model"),
    (r".*\.(bin|pt|pth)",
     "has a name that transformers does not give: rename it pytorch_model.bin if it is the model's weights alone"),
)  # fmt: skip


def weight_files(folder: Path) -> list[Path]:
    """The files, sorted by name, all there. HeadroomError names the first that is missing or no file, or says what
    lies there instead."""
    for stem, ending in KINDS:
        if (index := folder / f"{stem}{ending}.index.json").is_file():
            why = f"{index.name} asks for it"
            if (folder / f"{stem}{ending}").is_file():
                why += f"; without that index {stem}{ending} would count"
            return [_there(folder, name, why) for name in _indexed(index, ending)]
        if (whole := folder / f"{stem}{ending}").is_symlink() or whole.exists():
            return [_there(folder, whole.name)]
        numbered = re.compile(rf"{stem}-(\d+)-of-(\d+){re.escape(ending)}")
        if found := [match for name in _names(folder) if (match := numbered.fullmatch(name))]:
            return _complete(folder, found)
    raise HeadroomError(f"{folder} {_instead(folder)}")


def read_json(file: Path, problem: str) -> dict[str, Any]:
    """The object in a JSON file; HeadroomError, beginning with `problem`, where there is none."""
    advice = "download or copy it again"
    if file.is_symlink() and not file.exists():
        raise HeadroomError(f"{problem}: {file} is a link to a file that is not there; {advice}")
    if not file.exists():
        raise HeadroomError(f"{problem}: {file} is missing; give a folder that transformers' save_pretrained wrote")
    if not file.is_file() or file.stat().st_size > JSON_BYTES:
        raise HeadroomError(f"{problem}: {file} is {_what(file)}; {advice}")
    if found := not_weights(file):
        raise HeadroomError(f"{problem}: {file} {found}")
    try:
        # transformers writes 10^30 for a tokenizer without a limit; readers check the numbers they compute with
        return typed_json.read_json(file, dict[str, Any], JSON_BYTES, max_int=math.inf)
    except (OSError, InvalidFile) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise HeadroomError(f"{problem}: {file} cannot be read as a JSON object ({why}); {advice}") from error


def not_weights(file: Path) -> str:
    """What a file is that cannot be what its name says, with what to do; "" for all others. Reads 512 bytes."""
    with file.open("rb") as handle:
        head = handle.read(512)
    if not head:
        return "is empty, cut short at 0 bytes; download or copy it again"
    if head.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder"
    if head[257:262] == b"ustar":
        return "is a tar archive; unpack it, or save the model as safetensors"
    if head.startswith(b"\x1f\x8b"):
        return "is packed with gzip; unpack it"
    if head.startswith(b"GGUF"):
        return "is a GGUF file under another name; give that file itself as the model"
    if head.lstrip()[:5].lower() in (b"<!doc", b"<html"):
        return "is a web page, not the file itself; download it again"
    return ""


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def _indexed(index: Path, ending: str) -> list[str]:
    """File names that a sharded checkpoint's index asks for, sorted."""
    weight_map = read_json(index, "the index of the weights is damaged").get("weight_map")
    names = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if not names:
        raise HeadroomError(f"{index} names no weight files; download or copy it again")
    for name in names:
        plain = isinstance(name, str) and Path(name).name == name and "\0" not in name and len(name.encode()) <= 255
        if not plain or not name.endswith(ending):
            raise HeadroomError(f"{index} names {str(name)[:80]!r}, no {ending} file of its own folder; copy it again")
    return sorted(set(names))


def _complete(folder: Path, found: list[re.Match[str]]) -> list[Path]:
    """Shards without an index: all of one split, or refused."""
    counts = sorted({match[2] for match in found})
    if len(counts) > 1:
        several = " and ".join(f"of {int(count)}" for count in counts)
        raise HeadroomError(
            f"{folder} holds shards of several splits ({several}) and no index; keep those of one, or add the index"
        )
    example, n_shards = found[0], int(counts[0])
    width = len(example[1])
    stem, ending = example.string[: example.start(1)], example.string[example.end(1) :]
    if not len(found) <= n_shards <= 100_000:
        raise HeadroomError(f"{folder / example.string} has a number that cannot be; download the model again")
    return [_there(folder, f"{stem}{number:0{width}}{ending}") for number in range(1, n_shards + 1)]


def _there(folder: Path, name: str, why: str = "") -> Path:
    """A file that must be there and be one."""
    file = folder / name
    if file.is_file():
        return file
    because = f" ({why})" if why else ""
    if file.is_symlink() and not file.exists():
        raise HeadroomError(
            f"{file} is a link to a file that is not there ({file.readlink()}){because}; download the model again"
        )
    if file.exists():
        raise HeadroomError(f"{file} is {_what(file)}, not a weight file{because}; download or copy the model again")
    raise HeadroomError(f"{folder} lacks weight file {name}{because}; download the model again")


def _what(file: Path) -> str:
    if file.is_dir():
        return "a folder"
    return f"larger than {JSON_BYTES / 1e6:.0f} MB" if file.is_file() else "no ordinary file"


def _instead(folder: Path) -> str:
    """What lies in a folder without weights, in words, and what to do about it."""
    wanted = "no weights (model.safetensors or pytorch_model.bin)"
    for pattern, advice in OTHERS:
        found = [name for name in _names(folder) if re.fullmatch(pattern, name)]
        if found:
            plain = re.sub(r"\.[^.-]+(?=(-\d+-of-\d+)?\.\w+$)", "", found[0])
            more = f" (of {len(found)} such files)" if len(found) > 1 else ""
            return f"has {wanted}; {found[0]}{more} {advice.format(plain=plain)}"
    below = sorted(file.parent.name for _, ending in KINDS for file in folder.glob(f"*/*{ending}"))
    if below:
        return f"has {wanted} itself; the folder {below[0]} in it has some: give that one"
    return f"has {wanted}; add them"
