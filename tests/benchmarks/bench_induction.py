"""Prints how many times faster the activation scores are than loops over heads, positions and copies as llm-interpret
has them, on the same examples of an OPT-125m-shaped model (random weights), and the peak memory of Bansal's variant.

Both compute the same four scores (llm-interpret has two of them; duplicate and previous token are looped over in the
same way) in this process, in turn, several times; each does its own forward passes. Printed are the ratios' minimum,
median and maximum. The memory is that of a process of its own, which loads the model and does 893 tokens.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import psutil

from engine import probes
from engine.loading import LoadSpec, load

N_EXAMPLES, N_TOKENS, N_ROUNDS = 10, 25, 3


def make_opt_125m(folder):
    """Fills the folder with an OPT-125m-shaped model and the embedded model's tokenizer."""
    import shutil

    import torch
    from transformers import OPTConfig, OPTForCausalLM

    from engine.demo import model_folder

    torch.manual_seed(0)
    OPTForCausalLM(OPTConfig(max_position_embeddings=2048)).save_pretrained(folder)  # the defaults are OPT-125m's
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model_folder() / name, folder)


def generators():
    return [np.random.default_rng((0, example)) for example in range(N_EXAMPLES)]


def ours(model):
    for probe in (probes.prefix_matching, probes.previous_token, probes.copying):
        probe(model, N_TOKENS, generators())


def theirs(model):
    """Prefix matching element by element, copying position by position with a softmax over the vocabulary."""
    import torch

    opt, shape = model.model, model.identity.shape
    opt.set_attn_implementation("eager")
    with torch.no_grad():
        for tokens in torch.from_numpy(probes.repeated_tokens(model, N_TOKENS, 4, generators())):
            patterns = opt(input_ids=tokens[None], output_attentions=True).attentions
            scores = np.zeros((shape.n_layers, shape.n_heads))
            for layer in range(shape.n_layers):
                for head in range(shape.n_heads):
                    pattern = patterns[layer][0, head]
                    for d in range(N_TOKENS + 1, 4 * N_TOKENS + 1):
                        for copy in range(d // N_TOKENS):
                            scores[layer, head] += pattern[d][copy * N_TOKENS + d % N_TOKENS + 1].item()
                        for copy in range((d - 1) // N_TOKENS):
                            scores[layer, head] += pattern[d][copy * N_TOKENS + (d - 1) % N_TOKENS + 1].item()
        text = model.tokenizer(probes.story(), add_special_tokens=False, return_tensors="pt").input_ids[0]
        for example in range(N_EXAMPLES):
            stretch = text[example * N_TOKENS :][:N_TOKENS]
            patterns = opt(input_ids=torch.cat([torch.tensor([2]), stretch])[None], output_attentions=True).attentions
            for layer in range(shape.n_layers):
                for head in range(shape.n_heads):
                    for d in range(2, N_TOKENS + 1):
                        scores[layer, head] += patterns[layer][0, head][d][d - 1].item()
        for tokens in torch.from_numpy(probes.random_tokens(model, N_TOKENS, generators())):
            hidden = opt.model.decoder.embed_tokens(tokens) + opt.model.decoder.embed_positions.weight[2 : 2 + N_TOKENS]
            for layer in opt.model.decoder.layers:
                attention, x = layer.self_attn, layer.self_attn_layer_norm(hidden)
                pattern = attention(hidden_states=x[None], attention_mask=None)[1][0]
                values = attention.v_proj(x).view(N_TOKENS, shape.n_heads, shape.d_head)
                alone = torch.zeros(shape.n_heads, N_TOKENS, shape.n_heads, shape.d_head)
                for head in range(shape.n_heads):
                    alone[head, :, head] = values[:, head]
                probability = opt.lm_head(attention.out_proj(alone.flatten(2))).softmax(-1)
                for head in range(shape.n_heads):
                    most = pattern[head].argmax(-1)
                    for d in range(N_TOKENS):
                        so_far = probability[head][d][tokens[: d + 1]]
                        raised = (so_far - so_far.mean()).relu()
                        _ = raised[min(int(most[d]), d)].item() / max(raised.sum().item(), 1e-30)
    opt.set_attn_implementation("sdpa")


def seconds(function, *arguments):
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started


def main():
    with tempfile.TemporaryDirectory() as folder:
        # before this process grows: on Linux a child's peak begins at its parent's size
        alone("--make", folder)
        print(alone("--memory", folder), end="")
        model = load(LoadSpec(folder, "fp32"))
        ours(model)
        ratios, best = [], np.inf
        for _ in range(N_ROUNDS):
            mine = seconds(ours, model)
            ratios.append(seconds(theirs, model) / mine)
            best = min(best, mine)
        spread = f"{min(ratios):.1f} to {max(ratios):.1f} times faster (median {statistics.median(ratios):.1f})"
        print(f"Olsson's activation scores of {N_EXAMPLES} examples: {spread}, {best:.2f} s")


def alone(*arguments):
    """What a process of its own prints when it is called with these arguments."""
    return subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True).stdout


def memory(folder):
    """Prints the peak of one long example of Bansal's variant over what the loaded model takes."""
    import torch

    model = load(LoadSpec(folder, "fp32"))
    loaded = psutil.Process().memory_info().rss
    with torch.inference_mode():
        for probe in (probes.prefix_matching, probes.copying_bansal):
            probe(model, 223, generators()[:1])
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    weights = model.identity.weight_bytes("fp32")
    on_top = f"{(peak - loaded) / 1e6:,.0f} MB on top of the loaded model"
    print(f"Bansal's variant at 893 tokens: {on_top}, {1 + (peak - loaded) / weights:.2f} times its weights in all")


if __name__ == "__main__":
    parts = {"--make": make_opt_125m, "--memory": memory}
    parts[sys.argv[1]](sys.argv[2]) if sys.argv[1:] else main()
