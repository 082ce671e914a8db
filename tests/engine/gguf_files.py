"""GGUF files for tests, written from small models as llama.cpp's convert_hf_to_gguf.py writes them."""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np

RMS = ("llama", "qwen2", "qwen3", "phi3", "gemma2", "gemma3")
EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")
NORMAL, CONTROL = 1, 3  # types of tokens
KNOWN = ("general", "tokenizer", "split", "adapter")  # beginnings of fields of any architecture


def write_gguf(folder: Path, file: Path, kind: str = "F32", more=None, **fields) -> Path:
    """The file, with the model of that folder in it. `kind`: the type of its matrices; `fields`: of the architecture
    (of any where the name has a known beginning), None leaves one out; `more`: tensors by their names there."""
    import gguf

    model = model_in(folder)
    config = model.config
    arch = {"gemma3_text": "gemma3"}.get(config.model_type, config.model_type)
    own = {f"{arch}.{name}": value for name, value in fields_of(config, arch).items()}
    own |= tokens_of(folder, config.vocab_size)
    given = {name if name.startswith(KNOWN) else f"{arch}.{name}": value for name, value in fields.items()}
    writer = gguf.GGUFWriter(file, given.pop("general.architecture", arch))
    for name, value in (own | given).items():
        add(writer, name, value)
    numbers = {value: key for key, value in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(numbers[arch], config.num_hidden_layers)
    for name, values in tensors_of(model, arch).items():
        stem, _, suffix = name.rpartition(".")
        stem = names.get_name(stem) or names.get_name(stem.removeprefix("transformer."))
        put(writer, f"{stem}.{suffix}", values, kind)
    for name, values in (more or {}).items():
        put(writer, name, np.asarray(values, np.float32), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@lru_cache(maxsize=1)
def model_in(folder: Path):
    """The model in a folder."""
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder)


def put(writer, name: str, values: np.ndarray, kind: str) -> None:
    """Adds a tensor; norms and biases stay as they are."""
    import gguf

    number = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
    writer.add_tensor(name, gguf.quantize(np.ascontiguousarray(values), number), raw_dtype=number)


def add(writer, name: str, value) -> None:
    """Adds a field."""
    if value is None or name == "general.architecture":
        return
    add_one = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
               list: writer.add_array}  # fmt: skip
    add_one[type(value)](name, value)


def fields_of(config, arch: str) -> dict:
    """What a file says of the shape of a model."""
    heads = config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    norm = "attention.layer_norm_rms_epsilon" if arch in RMS else "attention.layer_norm_epsilon"
    eps = next(getattr(config, name) for name in EPSILONS if hasattr(config, name))
    found = {
        "block_count": config.num_hidden_layers,
        "context_length": getattr(config, "max_position_embeddings", 2048),
        "embedding_length": config.hidden_size,
        "feed_forward_length": getattr(config, "intermediate_size", 4 * config.hidden_size),
        "attention.head_count": heads,
        "attention.head_count_kv": getattr(config, "num_key_value_heads", heads),
        norm: float(eps),
        "attention.key_length": head,
        "attention.value_length": head,
    }
    if rope := getattr(config, "rope_parameters", None):
        found["rope.freq_base"] = float(rope.get("full_attention", rope)["rope_theta"])
        found["rope.dimension_count"] = int(head * rope.get("partial_rotary_factor", 1.0))
    if getattr(config, "sliding_window", None) and arch.startswith("gemma"):
        found["attention.sliding_window"] = config.sliding_window
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, name, None):
            found[name] = float(getattr(config, name))
    return found


def tokens_of(folder: Path, n_rows: int) -> dict:
    """The tokenizer of that folder, as a file says it."""
    said = json.loads((folder / "tokenizer.json").read_text())
    by_number = {number: token for token, number in said["model"]["vocab"].items()}
    special = {each["id"]: each["content"] for each in said["added_tokens"]}
    special |= {1: "<mask>", 3: "<|endoftext|>"}  # transformers' classes of tokenizers would add them
    tokens = [special.get(number) or by_number.get(number) or f"[PAD{number}]" for number in range(n_rows)]
    merges = [each if isinstance(each, str) else " ".join(each) for each in said["model"]["merges"]]
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL if number in special else NORMAL for number in range(n_rows)],
        "tokenizer.ggml.merges": merges, "tokenizer.ggml.bos_token_id": 2, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    }  # fmt: skip


def tensors_of(model, arch: str) -> dict[str, np.ndarray]:
    """The tensors of a model by their names, laid out as llama.cpp has them."""
    found = {name: value.detach().float().numpy() for name, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        found.pop("lm_head.weight", None)
    return {name: changed(model.config, arch, name, value) for name, value in found.items()}


def changed(config, arch: str, name: str, value: np.ndarray) -> np.ndarray:
    heads = config.num_attention_heads
    if arch == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
        n = heads if "q_proj" in name else config.num_key_value_heads
        return value.reshape(n, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
    if arch.startswith("gemma") and name.endswith("norm.weight"):
        return value + 1
    if arch == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
        return value.T
    if arch == "bloom" and "query_key_value" in name:
        return value.reshape(heads, 3, -1, *value.shape[1:]).swapaxes(0, 1).reshape(value.shape)
    return value
