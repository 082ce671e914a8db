"""Gradients of a loss by gates of 1 on every head's z and every FFN's output.

A gate's gradient is the product of the value it would multiply and that value's gradient, so no gate is actually
applied, and the model's output stays identical bit for bit. The products are computed and summed in fp32 in every
precision. No weight has a gradient, the backward pass ends at the first layer's heads, and after the last layer's heads
only the positions that are read are computed.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from engine.accuracy.passes import gradient_pass, read_places, tokens_computed
from engine.models.loading import Loaded
from engine.placement.placement import refuse_gradients
from engine.progress import may_stop
from engine.questions.encoding import Row


def gate_gradients(loaded: Loaded, rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (sum over positions of |dLoss/dgate| (row, choice, L, H), signed dLoss/dgate of heads (row, choice, L,
    H), of FFNs (row, choice, L)), for each choice's mean loss over its continuation tokens; 0 for missing choices.

    The absolute value is per position: |sum over d_head of z * dLoss/dz|, the inner term of Bansal et al.'s I_h. Works
    on int8 weights, whose layers pass gradients only to their inputs.
    """
    import torch

    refuse_gradients(loaded.placing, loaded.identity.name)
    model, shape = loaded.model, loaded.identity.shape
    n_rows, n_choices = len(rows), max(len(row.choices) for row in rows)
    absolute = np.zeros((n_rows, n_choices, shape.n_layers, shape.n_heads), np.float32)
    heads, ffns = np.zeros_like(absolute), np.zeros(absolute.shape[:3], np.float32)
    places = read_places(rows)
    place_of = {place: at for at, place in enumerate(places)}
    read = [(place_of[index, position], number, target, 1 / len(row.choices[number].targets))
            for index, row in enumerate(rows) for number, position, target in row.read]  # fmt: skip
    with torch.enable_grad(), _watched(loaded) as branches:
        hidden = gradient_pass(loaded, rows)
        place, number, target, weight = (
            torch.tensor(column, device=hidden.device) for column in zip(*read, strict=True)
        )
        logits = model.get_output_embeddings()(hidden[place]).float()
        losses = torch.nn.functional.cross_entropy(logits, target.to(logits.device), reduction="none")
        losses = losses * weight.to(losses.device)
        lengths = torch.tensor(tokens_computed(loaded, rows))
        row_of = torch.arange(n_rows).repeat_interleave(lengths), torch.tensor([index for index, _ in places])
        for choice in range(n_choices):
            # the rows are independent, so one pass gives this choice's gradients in every row
            mine = (number == choice).to(losses.device)
            gradients = torch.autograd.grad(losses[mine].sum(), branches, retain_graph=choice + 1 < n_choices)
            for index, (branch, gradient) in enumerate(zip(branches, gradients, strict=True)):
                layer, is_ffn = divmod(index, 2)
                product = branch.detach().float() * gradient.float()  # (..., n_heads * d_head or d_model)
                parts = (1, shape.d_model) if is_ffn else (shape.n_heads, shape.d_head)
                by_position = product.view(-1, *parts).sum(-1).cpu()
                rows_of = row_of[layer + 1 == shape.n_layers]
                summed = by_position.new_zeros(n_rows, by_position.shape[1])
                signed = summed.index_add(0, rows_of, by_position).numpy()
                if is_ffn:
                    ffns[:, choice, layer] = signed[:, 0]
                else:
                    heads[:, choice, layer] = signed
                    absolute[:, choice, layer] = summed.index_add(0, rows_of, by_position.abs()).numpy()
    return absolute, heads, ffns


@contextmanager
def _watched(loaded: Loaded) -> Iterator[list[Any]]:
    """While open, a forward pass appends each layer's z and FFN output, in layer order, as tensors with a gradient, to
    the list that is yielded."""
    branches = []

    def keep(value: Any) -> Any:
        if not value.requires_grad:  # nothing below the first branch needs one
            value = value.detach().requires_grad_()
        value.register_hook(lambda gradient: may_stop())  # a backward pass can be interrupted like a forward pass
        branches.append(value)
        return value

    with ExitStack() as hooks:
        for out, ffn in loaded.family.layer_modules(loaded.model):
            hooks.enter_context(out.register_forward_pre_hook(lambda module, args: (keep(args[0]), *args[1:])))
            hooks.enter_context(ffn.register_forward_hook(lambda module, args, output: keep(output)))
        yield branches
