"""Statistics of heads and FFNs for a task: gradients of a loss by gates of 1 on every head's z and every FFN's output;
the norm of their output in the residual stream, the size of its features, and the attention of heads to the first
token, all by one forward pass per question over its context and its right choice; and, of the model alone, norms of
weights.

A gate's gradient is the product of the value it would multiply and that value's gradient, so no gate is actually
applied, and the model's output stays identical bit for bit. The products are computed and summed in fp32 in every
precision. No weight has a gradient, the backward pass ends at the first layer's heads, and after the last layer's heads
only the positions that are read are computed. Weights are those that the model multiplies by: int8 weights after
scaling; gains of norms and biases are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.evaluation import encoded_chunk
from engine.accuracy.passes import gradient_pass, read_places, tokens_computed
from engine.accuracy.scoring import hidden_of, logits_of
from engine.models.loading import Loaded
from engine.models.masks import refuse_faulty
from engine.models.patterns import visited
from engine.models.session import Target
from engine.models.weights import (
    attention_norm_after,
    attention_weights,
    linear,
    norm_scale,
    output_bias,
    output_weights,
    written_weights,
)
from engine.pieces import Measuring, Piece
from engine.placement.placement import refuse_gradients
from engine.progress import Progress, may_stop
from engine.questions.encoding import Row, batches, pack
from engine.questions.rendering import CHUNK, Questions
from engine.records import Record, canonical_key
from engine.shapes import ModelShape
from engine.timing.workload import gold_characters

if TYPE_CHECKING:
    from torch import Tensor

Sums = dict[str, np.ndarray]


def activity_pieces(target: Target, questions: Questions) -> list[Piece]:
    """Returns one piece per chunk of these questions. Each stores sums over all positions of all inputs:

    head_norms, ffn_norms: (L, H), (L,) the length of what the component adds to the residual stream
    head_squares, ffn_squares: (L, H * d_head), (L, d_mlp) the square of each input of W_O and the FFN's output matrix
    first_token: (L, H) attention to position 0, from the positions after it
    n: (2,) the number of positions, and of those after the first
    """
    found = []
    for chunk, size in questions.sized_chunks(CHUNK):
        asked = chunk[:size]  # sums cannot be cut later
        golds = [question.golds[0] for question in questions.at(asked)]
        fields = target.key_of_patterns() | {"attention": "own", "questions": questions.digest(asked), "golds": golds}
        measure = partial(_measured, target=target, questions=questions, chunk=asked, golds=golds)
        reads = partial(gold_characters, questions.at(asked))
        found.append(Piece(canonical_key("activity", fields), size, _shapes(target.shape), measure, reads, "patterns"))
    return found


def summed(records: Sequence[Record]) -> Sums:
    """Returns the total of the sums of several pieces, fp64."""
    names = records[0].arrays
    return {name: np.sum([record.arrays[name].astype(np.float64) for record in records], axis=0) for name in names}


def _measured(
    loaded: Loaded, target: Target, questions: Questions, chunk: Sequence[int], golds: Sequence[int]
) -> Measuring:
    refuse_faulty(loaded)
    encoded = encoded_chunk(loaded, target, questions, chunk)
    rows = [row for choices, gold in zip(encoded, golds, strict=True) for row in pack([choices[gold]])]
    total, done, n_tokens = _nothing(loaded), 0, sum(len(row.tokens) for row in rows)
    for group in batches(rows):
        for name, each in _activity(loaded, group).items():
            total[name] += each
        done += sum(len(row.tokens) for row in group)
        yield Progress(0, 1, share=done / n_tokens)
    arrays = {name: each.astype(np.int64 if name == "n" else np.float32) for name, each in total.items()}
    return arrays, questions.receipt() | {"kind": "activity"}


def _shapes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    n, by_head = shape.n_layers, (shape.n_layers, shape.n_heads)
    squares = {"head_squares": (n, shape.n_heads * shape.d_head), "ffn_squares": (n, shape.d_mlp)}
    return {"n": (2,), "head_norms": by_head, "first_token": by_head, "ffn_norms": (n,)} | squares


def _nothing(loaded: Loaded) -> Sums:
    return {name: np.zeros(size) for name, size in _shapes(loaded.identity.shape).items()}


def _activity(loaded: Loaded, rows: Sequence[Row]) -> Sums:
    """Returns the sums over rows that share a padded pass."""
    import torch

    lengths = [len(row.tokens) for row in rows]
    inputs = torch.zeros(len(rows), max(lengths), dtype=torch.long)
    for at, row in enumerate(rows):
        inputs[at, : lengths[at]] = torch.tensor(row.tokens)
    # padding comes last: causal attention hides it, and it is not counted
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]  # (B, T)
    found = _nothing(loaded)
    found["n"] += sum(lengths), sum(length - 1 for length in lengths)

    def visit(layer: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
        here = real.to(z.device)
        by_head = z.transpose(1, 2)[here].float()  # (n, H, d_head)
        weights, scale = written_weights(loaded, layer), 1.0 / _divided_by(loaded, layer, by_head)
        for head in range(by_head.shape[1]):
            found["head_norms"][layer, head] = _sum((by_head[:, head] @ weights[head]).norm(dim=-1) * scale)
        found["head_squares"][layer] = by_head.flatten(1).double().square().sum(0).cpu().numpy()
        first = pattern[:, :, 1:, 0].masked_fill(~here[:, None, 1:], 0.0)
        found["first_token"][layer] = first.sum((0, 2), dtype=torch.float64).cpu().numpy()

    with torch.inference_mode(), visited(loaded, visit), _ffns_watched(loaded, real.flatten(), found):
        hidden_of(loaded, inputs)
    return found


def _divided_by(loaded: Loaded, layer: int, z: Tensor) -> Tensor | float:
    """Returns (n,): what a norm behind attention divides the output of the heads `z` (n, H, d_head) by, if any."""
    norm = attention_norm_after(loaded, layer)
    if norm is None:
        return 1.0
    given = z.flatten(1) @ output_weights(loaded, layer).flatten(0, 1) + output_bias(loaded, layer)
    return norm_scale(norm, given)[:, 0]


@contextmanager
def _ffns_watched(loaded: Loaded, real: Tensor, found: Sums) -> Iterator[None]:
    """While open, a forward pass adds its FFNs' sums over the positions that are `real` (B * T,) to `found`."""

    def watch(layer: int, out: Any, writer: Any) -> None:
        def written(module: Any, args: tuple[Any, ...], output: Tensor) -> None:
            rows = output.flatten(0, -2)[real.to(output.device)].float() * loaded.scales.residual
            found["ffn_norms"][layer] = _sum(rows.norm(dim=-1))

        def read(module: Any, args: tuple[Any, ...]) -> None:
            rows = args[0].flatten(0, -2)[real.to(args[0].device)].float()
            found["ffn_squares"][layer] = rows.double().square().sum(0).cpu().numpy()

        hooks.enter_context(out.register_forward_hook(written))
        hooks.enter_context(writer.register_forward_pre_hook(read))

    with ExitStack() as hooks:
        modules = zip(loaded.family.layer_modules(loaded.model), loaded.family.ffn_writers(loaded.model), strict=True)
        for layer, ((_, out), writer) in enumerate(modules):
            watch(layer, out, writer)
        yield


def _sum(values: Tensor) -> float:
    return float(values.double().sum())


def magnitude_piece(target: Target) -> Piece:
    """Returns the piece with the norms of a model's weights, fp32: `heads` (L, H) the Frobenius norm of W_V W_O, `ffns`
    (L,) the product of the norms of the input matrices (Llama: gate and up as one matrix) and of the output matrix; for
    Wanda `head_outputs` (L, H * d_head) and `ffn_outputs` (L, d_mlp): the sum of |w| by input of the output matrix."""
    shape = target.shape
    key = canonical_key("magnitudes", target.as_usual.key())
    n = shape.n_layers
    shapes: dict[str, tuple[int | str, ...]] = {"heads": (n, shape.n_heads), "ffns": (n,)}
    shapes |= {"head_outputs": (n, shape.n_heads * shape.d_head), "ffn_outputs": (n, shape.d_mlp)}
    return Piece(key, 1, shapes, _weighed)


def _weighed(loaded: Loaded) -> Measuring:
    import torch

    refuse_faulty(loaded)
    found: dict[str, list[np.ndarray]] = {name: [] for name in ("heads", "ffns", "head_outputs", "ffn_outputs")}
    n = loaded.identity.shape.n_layers
    for layer in range(n):
        yield Progress(0, 1, message="weights", share=layer / n)
        with torch.inference_mode():
            for name, each in _of_layer(loaded, layer).items():
                found[name].append(each.float().cpu().numpy())
    return {name: np.stack(each) for name, each in found.items()}, {"kind": "magnitudes"}


def _of_layer(loaded: Loaded, layer: int) -> dict[str, Tensor]:
    import torch

    shape, family = loaded.identity.shape, loaded.family
    values = attention_weights(loaded, layer)[2].double()  # (H, d_model, d_head)
    outputs = output_weights(loaded, layer).double()  # (H, d_head, d_model)
    # |W_V W_O|^2 = trace of W_V' W_V W_O W_O', a product of (d_head, d_head) matrices
    squared = ((values.transpose(1, 2) @ values) * (outputs @ outputs.transpose(1, 2))).sum((1, 2))
    module = family.layer_list(loaded.model)[layer]
    readers = [linear(loaded, attrgetter(name)(module), shape.d_model)[0].double() for name in family.ffn_read]
    writer = linear(loaded, attrgetter(family.ffn_write)(module), shape.d_mlp)[0].double()  # (d_mlp, d_model)
    writer = writer * loaded.scales.residual
    read = torch.stack([matrix.square().sum() for matrix in readers]).sum().sqrt()
    return {
        "heads": squared.clamp_min(0).sqrt(),
        "ffns": read * writer.norm(),
        "head_outputs": outputs.abs().sum(-1).flatten(),
        "ffn_outputs": writer.abs().sum(-1),
    }


def gate_gradients(loaded: Loaded, rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (sum over positions of |dLoss/dgate| (row, choice, L, H), signed dLoss/dgate of heads (row, choice, L,
    H), of FFNs (row, choice, L)), for each choice's mean loss over its continuation tokens; 0 for missing choices.

    The absolute value is per position: |sum over d_head of z * dLoss/dz|, the inner term of Bansal et al.'s I_h. Works
    on int8 weights, whose layers pass gradients only to their inputs.
    """
    import torch

    refuse_gradients(loaded.placing, loaded.identity.name)
    refuse_faulty(loaded)
    shape = loaded.identity.shape
    n_rows, n_choices = len(rows), max(len(row.choices) for row in rows)
    absolute = np.zeros((n_rows, n_choices, shape.n_layers, shape.n_heads), np.float32)
    heads, ffns = np.zeros_like(absolute), np.zeros(absolute.shape[:3], np.float32)
    places = read_places(rows)
    place_of = {place: at for at, place in enumerate(places)}
    read = [(place_of[index, position], number, target, 1 / len(row.choices[number].targets))
            for index, row in enumerate(rows) for number, position, target in row.read]  # fmt: skip
    with torch.enable_grad(), _gated(loaded) as branches:
        hidden = gradient_pass(loaded, rows)
        place, number, target, weight = (
            torch.tensor(column, device=hidden.device) for column in zip(*read, strict=True)
        )
        logits = logits_of(loaded, hidden[place]).float()
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
def _gated(loaded: Loaded) -> Iterator[list[Any]]:
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
