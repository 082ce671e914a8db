"""Private and fragile parts of transformers 5.23 that read GGUF files (modeling_gguf_pytorch_utils.py) with the library
gguf. Read in version 0.19 of that; each has a test in tests/engine/test_library_internals.py.

transformers makes a whole model in memory, in fp32. Here its parts are used one by one: what it makes of the fields,
its names of tensors and what it undoes of llama.cpp's layout, a tensor at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from engine.architecture.torch_internals import replaced
from engine.checkpoints.gguf_header import Header, StoredTensor

if TYPE_CHECKING:
    import numpy as np

NAME = "_model_name_or_path"  # transformers puts the model's title there
CHUNK_VALUES = 1 << 24  # values of a tensor that are computed at once


@contextmanager
def _reading(header: Header) -> Iterator[None]:
    """Context in which transformers gets the fields from `header`. gguf's own reader makes several objects for every
    token, which takes half a minute for Gemma's; lists as long are left out here, and none of them is in a config."""
    import gguf
    from transformers import modeling_gguf_pytorch_utils as legacy

    listed = {key: value if isinstance(value, list) else [value] for key, value in header.fields.items()}
    fields = {
        key: SimpleNamespace(parts=items, data=range(len(items)), types=[])
        for key, items in listed.items()
        if key not in header.counted
    }
    reader = SimpleNamespace(fields=fields, tensors=header.tensors)
    with (
        replaced(gguf.__dict__, GGUFReader=lambda path: reader),
        replaced(legacy.__dict__, _gguf_parse_value=lambda value, types: value),
    ):
        yield


def config_of(header: Header) -> dict[str, Any]:
    """The fields of the config that transformers reads from a GGUF file, with its `model_type`."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    with _reading(header):
        config = load_gguf_checkpoint(str(header.file))["config"]
    config.pop(NAME, None)
    return {"vocab_size": header.n_tokens} | config


def tokenizer_of(header: Header, empty: Path) -> Any:
    """The tokenizer that transformers reads from a GGUF file. `empty`: a folder without files, as a
    tokenizer_config.json in the file's own would count too."""
    import transformers

    with _reading(header):
        return transformers.AutoTokenizer.from_pretrained(
            str(empty), gguf_file=str(header.file.resolve()), local_files_only=True, trust_remote_code=False
        )


def names_of(header: Header, model: Any) -> Mapping[str, str]:
    """The name in a model of transformers of each tensor that it has in a GGUF file, by the name there."""
    from transformers.modeling_gguf_pytorch_utils import get_gguf_hf_weights_map

    return get_gguf_hf_weights_map(model, _processor(header, {}))


def values_of(header: Header, stored: StoredTensor, config: Mapping[str, Any]) -> np.ndarray:
    """The values of a tensor in fp32 as the model of transformers has them."""
    processed = _processor(header, config).process(
        weights=raw_values(header.file, stored), name=stored.name, parsed_parameters=(aside := {"tensors": {}})
    )
    if processed.name is None:  # GPT-2's unembedding is handed over on the side
        return next(iter(aside["tensors"].values())).numpy()
    return processed.weights


def _processor(header: Header, config: Mapping[str, Any]) -> Any:
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

    return TENSOR_PROCESSORS.get(header.architecture, TensorProcessor)(config=dict(config))


def raw_values(file: Path, stored: StoredTensor) -> np.ndarray:
    """The values of a tensor as they lie in the file, some rows at a time: the library takes several times as much."""
    import gguf
    import numpy as np

    kind = gguf.GGMLQuantizationType[stored.kind]
    content = np.memmap(file, np.uint8, "r", stored.at, (stored.n_bytes,))
    width = stored.shape[-1] if stored.shape else 1
    values = np.empty((int(np.prod(stored.shape)) // max(1, width), width), np.float32)
    rows = content.reshape(len(values), -1) if len(values) else content.reshape(0, 0)
    rows = rows.view({"F32": np.float32, "F16": np.float16}.get(stored.kind, np.uint8))
    step = max(1, CHUNK_VALUES // width)
    for first in range(0, len(values), step):
        values[first : first + step] = gguf.dequantize(rows[first : first + step], kind)
    return values.reshape(stored.shape)
