"""The most memory that `evaluate` holds in a process of its own, against the model's weights in that precision and what
`engine.placement.needs.memory_estimate` says; OPT-1.3b's shape in 16 bits, OPT-125m's with --quick.

A line's ratio is the estimate over what was measured; what share of the weights that is stands behind it.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.models.loading import LoadSpec, identify
from engine.placement.needs import memory_estimate
from tests.benchmarks.measure import Comparison, alone, opt_125m, peak_bytes

OPT_1_3B = {"hidden_size": 2048, "word_embed_proj_dim": 2048, "ffn_dim": 8192, "num_hidden_layers": 24,
            "num_attention_heads": 32, "dtype": "float16"}  # fmt: skip
CASES = (("safetensors", "int8", "random", 2.0), ("safetensors", "int8", "importance", 2.0),
         (".bin", "int8", "random", 2.4), (".bin", "bf16", "random", None),
         (".bin", "fp32", "random", None))  # fmt: skip
QUESTIONS = ("--task", "demo_sort", "--limit", "8", "--prune-heads", "40", "--ranking-questions", "8")
MODULE = "tests.benchmarks.bench_memory"


def compare(quick: bool) -> Iterator[Comparison]:
    """Peak bytes of each case."""
    with tempfile.TemporaryDirectory() as folder:
        alone(MODULE, "make", folder, json.dumps({} if quick else OPT_1_3B))
        for layout, precision, ranking, bar in CASES:
            model = str(Path(folder) / layout)
            identity = identify(LoadSpec(model))
            weights = identity.weight_bytes(precision)
            said = memory_estimate(identity.model_config, precision, identity.loading_bytes).needed_bytes
            with tempfile.TemporaryDirectory() as store:
                of_model = ("--model", model, "--precision", precision, "--ranking", ranking, "--cache", store)
                peak = alone(MODULE, "evaluate", *of_model, *QUESTIONS)
            yield Comparison(
                "Memory of a load and a run: measured against the estimate", f"{layout}, {precision}, {ranking}", "GB",
                (peak / 1e9,), (said / 1e9,), "1 run",
                difference=f"{peak / weights:.2f} times the weights" + (f", asked under {bar}" if bar else ""),
            )  # fmt: skip


def make(folder: str, sizes: str) -> None:
    """Writes the model as safetensors and as a .bin file."""
    import shutil

    import torch
    from transformers import OPTForCausalLM

    plain, pickled = Path(folder) / "safetensors", Path(folder) / ".bin"
    opt_125m(plain, **json.loads(sizes))
    shutil.copytree(plain, pickled, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save(OPTForCausalLM.from_pretrained(plain, dtype="auto").state_dict(), pickled / "pytorch_model.bin")


def main(what: str, *arguments: str) -> None:
    """What runs in a process of its own; the last line is the result."""
    if what == "make":
        make(*arguments)
        print("null")
        return
    from engine.__main__ import main as command_line

    command_line(["evaluate", *arguments])
    print(f"\n{peak_bytes()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
