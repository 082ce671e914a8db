"""The most memory that `evaluate` holds in a process of its own, against the model's weights in that precision and what
`engine.placement.needs.memory_estimate` says; OPT-1.3b's shape in 16 bits, OPT-125m's with --quick.

A line's ratio is the estimate over what was measured; what share of the weights that is stands behind it.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.models.loading import LoadSpec, identify
from engine.placement.needs import memory_estimate
from tests.benchmarks.measure import Comparison, alone, opt_125m, peak_bytes

OPT_1_3B = {"hidden_size": 2048, "word_embed_proj_dim": 2048, "ffn_dim": 8192, "num_hidden_layers": 24,
            "num_attention_heads": 32, "dtype": "float16"}  # fmt: skip
CASES = (("safetensors", "int8", "random", 2.0), ("safetensors", "int8", "importance", 2.0),
         (".bin", "int8", "random", 2.4), (".bin", "bf16", "random", None),
         (".bin", "fp32", "random", None))  # fmt: skip
FAMILY = "Memory of a load and a run: measured against the estimate"


def compare(quick: bool) -> Iterator[Comparison]:
    """Peak bytes of each case."""
    with tempfile.TemporaryDirectory() as folder:
        alone(make, folder, {} if quick else OPT_1_3B)
        for layout, precision, ranking, bar in CASES:
            identity = identify(LoadSpec(f"{folder}/{layout}"))
            said = memory_estimate(identity.model_config, precision).needed_bytes
            peak = alone(evaluate, f"{folder}/{layout}", precision, ranking)
            weights = f"{peak / identity.weight_bytes(precision):.2f} times the weights"
            asked = f", asked under {bar}" if bar else ""
            yield Comparison(FAMILY, f"{layout}, {precision}, {ranking}", "GB", (peak / 1e9,), (said / 1e9,), "1 run",
                             difference=weights + asked)  # fmt: skip


def make(folder: str, sizes: dict[str, Any]) -> None:
    """Writes the model as safetensors and as a .bin file."""
    import shutil

    import torch
    from transformers import OPTForCausalLM

    plain, pickled = Path(folder) / "safetensors", Path(folder) / ".bin"
    opt_125m(plain, **sizes)
    shutil.copytree(plain, pickled, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save(OPTForCausalLM.from_pretrained(plain, dtype="auto").state_dict(), pickled / "pytorch_model.bin")


def evaluate(model: str, precision: str, ranking: str) -> int:
    """The most memory that this process holds while the command runs."""
    from engine.__main__ import main

    with tempfile.TemporaryDirectory() as store:
        main(["evaluate", "--model", model, "--precision", precision, "--order", ranking, "--cache", store, "--task",
              "demo_sort", "--limit", "8", "--prune-heads", "40", "--order-questions", "8"])  # fmt: skip
    return peak_bytes()
