"""The special tokens of a model folder by name, read from its files alone: what transformers' tokenizer has in
`special_tokens_map`, and gives to chat templates.
"""

from pathlib import Path
from typing import Any

from engine.checkpoints.tokenizer import tokenizer_settings

OLD_SETTINGS = "special_tokens_map.json"
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_END = "<|endoftext|>"
# of the tokenizer classes of transformers that have tokens of their own, which a folder need not name
CLASS_TOKENS = {
    "LlamaTokenizer": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "GPT2Tokenizer": {"bos_token": _END, "eos_token": _END, "unk_token": _END},
    "GPTNeoXTokenizer": {"bos_token": _END, "eos_token": _END, "unk_token": _END, "pad_token": "<|padding|>"},
    "Qwen2Tokenizer": {"eos_token": _END, "unk_token": _END, "pad_token": _END},
    "GemmaTokenizer": {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>",
                       "mask_token": "<mask>"},
    "CohereTokenizer": {"bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>", "unk_token": "<UNK>",
                        "pad_token": "<PAD>", "cls_token": "<CLS>", "sep_token": "<SEP>", "mask_token": "<MASK_TOKEN>"},
}  # fmt: skip
# the class for a model type, where the folder names none; "": transformers uses none of these, whatever is named
TYPE_CLASSES = {
    **dict.fromkeys(("opt", "gpt2", "gpt_neo", "gptj", "phi", "starcoder2"), "GPT2Tokenizer"),
    **dict.fromkeys(("gpt_neox", "mpt"), "GPTNeoXTokenizer"),
    **dict.fromkeys(("qwen2", "qwen3"), "Qwen2Tokenizer"),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text"), "GemmaTokenizer"),
    "cohere": "CohereTokenizer",
    **dict.fromkeys(("mistral", "olmo2", "olmo3", "phi3", "granite", "stablelm"), ""),
}


def special_tokens(folder: Path, model_type: str, tokenizer_class: str, source: str) -> tuple[tuple[str, str], ...]:
    """(name, token) of those that a template may use: all that the folder names, and others that its `source` names.

    `model_type`, `tokenizer_class`: what config.json says, "" for nothing. HeadroomError: a file of the tokenizer is
    damaged."""
    settings = tokenizer_settings(folder)
    if "added_tokens_decoder" not in settings:  # else the older file does not count
        settings |= tokenizer_settings(folder, OLD_SETTINGS)
    found = _class_tokens(model_type, settings.get("tokenizer_class") or tokenizer_class) | {
        name: settings[name] for name in settings if name.endswith("_token")
    }
    if isinstance(more := settings.get("extra_special_tokens"), dict):
        found |= more
    named = [name for name in SPECIAL if settings.get(name)]
    # one more in a key that no prompt depends on would hide results; BOS says whether a prompt begins with it
    named += [name for name in found if name not in named and (name in source or name == "bos_token")]
    return tuple((name, text) for name in named if (text := _text(found[name])))


def _class_tokens(model_type: str, named: Any) -> dict[str, Any]:
    """Those of the class that transformers takes; `named` is the class that the folder names, if any."""
    of_type = TYPE_CLASSES.get(model_type)
    if of_type == "" or model_type == "qwen2":  # whatever is named
        named = None
    return CLASS_TOKENS.get(str(named or of_type).removesuffix("Fast"), {})


def _text(token: Any) -> str:
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else ""
