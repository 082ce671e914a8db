"""Olsson's activation scores against loops over heads, positions and copies as llm-interpret has them.

Both compute the same four scores of the same examples of a random model of OPT-125m's shape (llm-interpret has two of
them; duplicate and previous token are looped over in the same way), each with its own forward passes. And heads
replaced at the last token of a prompt, one by one: all in rows of one token against a full pass per head.
"""

import tempfile
from collections.abc import Iterator

import numpy as np

from engine.accuracy.scoring import logits_of
from engine.heads import probes
from engine.heads.last_token import hidden_with
from engine.models.loading import LoadSpec, load
from tests.benchmarks.measure import Comparison, in_turn, opt_125m

N_EXAMPLES, N_TOKENS, N_ROUNDS = 10, 25, 3
FAMILY = "Induction scores against llm-interpret's loops"
LAST_TOKEN = "Heads replaced at the last token against a full pass per head"
PROMPT_TOKENS = 100


def compare(quick: bool) -> Iterator[Comparison]:
    """Seconds of all four scores, in turn; and of all heads replaced."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        model = load(LoadSpec(opt_125m(folder), "fp32"))
        ours(model)
        n_rounds = 1 if quick else N_ROUNDS
        mine, usual = in_turn([lambda: ours(model), lambda: theirs(model)], n_rounds)
        name = f"OPT-125m shape, fp32, {N_EXAMPLES} examples"
        yield Comparison(FAMILY, name, "s", mine.seconds, usual.seconds, f"{n_rounds} rounds")
        ids, shape = list(range(100, 100 + PROMPT_TOKENS)), model.identity.shape
        instead = torch.randn(shape.n_layers, shape.n_heads, shape.d_head)
        ways = [lambda: in_rows(model, ids, instead), lambda: one_by_one(model, ids, instead)]
        mine, usual = in_turn(ways, n_rounds, warm_up=True)
        same = f"logits differ by at most {(mine.found[1:] - usual.found).abs().max():.0e}"
        name = f"OPT-125m shape, fp32, prompt of {PROMPT_TOKENS} tokens"
        yield Comparison(LAST_TOKEN, name, "s", mine.seconds, usual.seconds, f"{n_rounds} rounds", 20.0, same)


def in_rows(model, ids, instead):
    """(1 + L * H, V): logits at the last token, as they are and with each head replaced there."""
    import torch

    with torch.inference_mode():
        return logits_of(model, hidden_with(model, ids, instead))


def one_by_one(model, ids, instead):
    """(L * H, V): logits at the last token with each head replaced there, by a full pass each."""
    import torch

    outs, d_head, found = (
        [layer.self_attn.out_proj for layer in model.model.model.decoder.layers],
        instead.shape[-1],
        [],
    )
    for layer, head in np.ndindex(instead.shape[:2]):

        def replace(module, args, layer=layer, head=head):
            args[0][0, -1, d_head * head : d_head * (head + 1)] = instead[layer, head]

        with torch.inference_mode(), outs[layer].register_forward_pre_hook(replace):
            found.append(model.model(torch.tensor([ids]), use_cache=False, logits_to_keep=1).logits[0, -1])
    return torch.stack(found)


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
