"""One module for each supported model family.

What Headroom knows of a family is one `Family` value, and NAMES is the one list of them.

`definition`: what a Family says
`opt`: OPT
`llama`: Llama, and models of its shape
`headroom_small`: small models trained here that no class of transformers is
`gpt2`: GPT-2
`phi`: Phi-1, Phi-1.5 and Phi-2
`stablelm`: StableLM
`cohere`: Command R and Aya
`gpt_neo`: GPT-Neo
`gptj`: GPT-J
`gpt_neox`: GPT-NeoX and Pythia
`bloom`: BLOOM
`mpt`: MPT
`falcon`: Falcon, but for the models with ALiBi
`mistral`: Mistral
`qwen2`: Qwen2 and Qwen2.5
`qwen3`: Qwen3
`smollm3`: SmolLM3
`olmo2`: OLMo 2
`gemma2`: Gemma 2
`gemma3_text`: Gemma 3 without images
`olmo3`: OLMo 3
`gemma`: Gemma
`granite`: Granite
`starcoder2`: StarCoder2
`phi3`: Phi-3, Phi-3.5 and Phi-4 mini
"""

from importlib import import_module

from engine.architecture.families.definition import Family

# each is a module here, and what a config.json says as its `model_type`
NAMES = ("opt", "llama", "headroom_small", "mistral", "qwen2", "qwen3", "smollm3", "olmo2", "olmo3", "gemma",
         "gemma2", "gemma3_text", "phi3", "granite", "starcoder2", "phi", "stablelm", "cohere", "gpt2",
         "gpt_neo", "gptj", "gpt_neox", "bloom", "mpt", "falcon")  # fmt: skip
FAMILIES: dict[str, Family] = {name: import_module(f"{__name__}.{name}").FAMILY for name in NAMES}
