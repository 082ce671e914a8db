"""One module for each supported model family.

What Headroom knows of a family is one `Family` value in the module named after its `model_type`, and NAMES is the one
list of them.

`definition`: what a Family says
"""

from importlib import import_module

from engine.architecture.families.definition import Family

# each is a module here, and what a config.json says as its `model_type`
NAMES = ("opt", "llama", "headroom_small", "mistral", "qwen2", "qwen3", "smollm3", "olmo2", "olmo3", "gemma",
         "gemma2", "gemma3_text", "phi3", "granite", "starcoder2", "phi", "stablelm", "cohere", "gpt2",
         "gpt_neo", "gptj", "gpt_neox", "bloom", "mpt", "falcon")  # fmt: skip
FAMILIES: dict[str, Family] = {name: import_module(f"{__name__}.{name}").FAMILY for name in NAMES}
