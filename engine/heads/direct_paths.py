"""What heads, FFNs, embeddings and biases add to the logits by the direct path.

Their output in the residual stream passes through the final norm, with its scale frozen, and the unembedding. Logits
are zero-meaned over the vocabulary, before a cap (Gemma 2), and read at the actual next token (Olsson et al. 2022). The
parts add up to the true zero-meaned logit; in int8 only approximately, because a sum of heads is rounded differently
than each head.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.scoring import hidden_of, some_logits
from engine.models.loading import Loaded
from engine.models.masks import Mask, pruned
from engine.models.patterns import Visit, unseen, visited
from engine.models.weights import (
    attention_norm_after,
    folded,
    norm_scale,
    normed,
    norms_behind,
    output_bias,
    output_weights,
    unembedding,
)
from engine.placement.accelerate_internals import onloaded

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Pass:
    """One forward pass over T tokens: outputs by layer, and the vectors that read them. The inner product of an output
    with its reader, both at the same position, is what the output adds to the zero-meaned logit of the next token.

    z: by layer, (T, H, d_head)
    ffn: by layer, the FFN's output (T, d_model)
    embedded: (T, d_model) the residual stream before layer 0
    for_attention: by layer, (T - 1, d_model) the reader of the attention's output
    for_ffn: by layer, (T - 1, d_model) the reader of the FFN's output
    for_embedded: (T - 1, d_model) the reader of the embeddings
    constant: (T - 1,) what the norms' biases add
    hidden: (T - 1, d_model) the unembedding's input
    following: (T - 1,) the next tokens
    scale: by norm, (T - 1, 1) what it divided by
    """

    z: dict[int, Tensor]
    ffn: dict[int, Tensor]
    embedded: Tensor
    for_attention: dict[int, Tensor]
    for_ffn: dict[int, Tensor]
    for_embedded: Tensor
    constant: Tensor
    hidden: Tensor
    following: Tensor
    scale: Mapping[Any, Tensor]


def run(loaded: Loaded, inputs: np.ndarray, mask: Mask, visit: Visit = unseen) -> Pass:
    """Returns the Pass over `inputs` (T,) token ids, with a `visit` as in engine.models.patterns. Call inside
    torch.inference_mode."""
    import torch

    model, shape = loaded.model, loaded.identity.shape
    final, norms = loaded.family.final_norm(model), [norms_behind(loaded, layer) for layer in range(shape.n_layers)]
    branches = [attention_norm_after(loaded, layer) for layer in range(shape.n_layers)]
    z, ffn, embedded, scale = {}, {}, {}, {}
    scale_of_branches = loaded.scales.residual

    def keep_z(layer: int) -> Any:
        return lambda module, args: z.update({layer: args[0][0].float().unflatten(-1, (shape.n_heads, -1))})

    def keep_ffn(layer: int) -> Any:
        return lambda module, args, output: ffn.update(
            {layer: output.reshape(-1, shape.d_model).float() * scale_of_branches}
        )

    def keep_embedded(module: Any, args: Any, kwargs: Any) -> None:
        embedded[0] = (args[0] if args else kwargs["hidden_states"])[0].float()

    def keep_scale(norm: Any) -> Any:
        return lambda module, args: scale.update({norm: norm_scale(norm, args[0].reshape(-1, shape.d_model))[:-1]})

    tokens = torch.from_numpy(inputs.astype(np.int64)).to(model.get_input_embeddings().weight.device)
    with pruned(loaded, mask), ExitStack() as hooks:  # the mask's hooks first, so that ours see the pruned outputs
        layers = loaded.family.layer_list(model)
        for layer, (attention_out, ffn_out) in enumerate(loaded.family.layer_modules(model)):
            hooks.enter_context(attention_out.register_forward_pre_hook(keep_z(layer)))
            hooks.enter_context(ffn_out.register_forward_hook(keep_ffn(layer)))
        hooks.enter_context(layers[0].register_forward_pre_hook(keep_embedded, with_kwargs=True))
        for norm in [final, *branches, *chain.from_iterable(norms)]:
            if norm is not None:
                hooks.enter_context(norm.register_forward_pre_hook(keep_scale(norm)))
        with visited(loaded, visit):
            hidden = hidden_of(loaded, tokens[None])[0, :-1]
    reader, constant = unembedding(loaded, tokens[1:], final_norm=False, zero_mean=True), hidden.new_zeros(()).float()
    if (bias := getattr(model.get_output_embeddings(), "bias", None)) is not None:
        constant = bias[tokens[1:]].float() - bias.float().mean()

    def through(norm: Any) -> None:
        """Moves the reader from after a norm to before it."""
        nonlocal reader, constant
        if norm is not None:
            with onloaded(norm):
                bias = getattr(norm, "bias", None)
                constant = constant if bias is None else constant + reader @ bias.to(reader.device).float()
            reader = folded(loaded, norm, reader) / scale[norm].to(reader.device)

    for_attention, for_ffn = {}, {}
    through(final)
    for layer in reversed(range(shape.n_layers)):
        after_attention, after_ffn = norms[layer]
        through(after_ffn)
        for_ffn[layer] = reader
        through(after_attention)
        branch = branches[layer]
        of_branch = reader if branch is None else folded(loaded, branch, reader) / scale[branch].to(reader.device)
        for_attention[layer] = of_branch
    return Pass(z, ffn, embedded[0], for_attention, for_ffn, reader, constant, hidden, tokens[1:], scale)


def decomposed(loaded: Loaded, ran: Pass) -> dict[str, np.ndarray]:
    """Returns what `heads` (L, H, T - 1), `ffns` (L, T - 1), `direct` and `rest` (T - 1,) add at each position to the
    zero-meaned `logit` (T - 1,) of the next token. Call inside torch.inference_mode."""
    import torch

    heads, ffns, rest = [], [], ran.constant
    for layer in range(loaded.identity.shape.n_layers):
        read = ran.for_attention[layer]
        written = torch.einsum("thd,hdm->htm", ran.z[layer][:-1], output_weights(loaded, layer))
        heads.append((written.to(read.device) * read).sum(-1))
        ffns.append((ran.ffn[layer][:-1].to(read.device) * ran.for_ffn[layer]).sum(-1))
        rest = rest + read @ output_bias(loaded, layer).to(read.device)
    direct = (ran.embedded[:-1] * ran.for_embedded).sum(-1)
    found = {"heads": torch.stack(heads), "ffns": torch.stack(ffns), "direct": direct, "rest": rest}
    found["logit"] = torch.cat([
        logits.gather(1, ran.following[which, None])[:, 0] - logits.mean(-1)
        for which, logits in some_logits(loaded, ran.hidden, is_capped=False)
    ])  # fmt: skip
    return {name: array.cpu().numpy() for name, array in found.items()}


def norms_after(loaded: Loaded, layer: int) -> list[Any]:
    """Returns the norms between a layer's attention and the unembedding by the direct path, in their order."""
    n_layers = loaded.identity.shape.n_layers
    norms = [attention_norm_after(loaded, layer)]
    norms += [*chain.from_iterable(norms_behind(loaded, each) for each in range(layer, n_layers))]
    return [norm for norm in (*norms, loaded.family.final_norm(loaded.model)) if norm is not None]


def read_by_all(loaded: Loaded, ran: Pass, layer: int, written: Tensor) -> Tensor:
    """Returns (T - 1, d_model): the output of a layer's attention as the unembedding reads it, after every later norm
    with its frozen scale."""
    for norm in norms_after(loaded, layer):
        written = normed(loaded, norm, written) / ran.scale[norm].to(written.device)
    return written
