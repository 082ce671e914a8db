"""How much each head and FFN matters for a task: gradient scores in one backward pass, and the ablation oracle.

A gate of 1 multiplies every head's z and every FFN's output; its gradient is what all gradient scores are made of.
Gates are fp32 whatever the model's precision, one a position for heads, so that the model's output stays bit for bit
the same and the sums over d_head are taken in fp32. The choices of a question share one packed forward pass where that
is cheaper, and have a backward pass each.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.checkpoints import Identity
from engine.encoding import Encoded, Row, encode_questions, pack
from engine.errors import UsageError
from engine.evaluation import (
    Answers,
    loaded_model,
    make_receipt,
    numbers_key,
    texts_digest,
    with_bos,
)
from engine.jobs import Progress
from engine.loading import Loaded, LoadSpec, Models, identify
from engine.masks import Mask, pruned
from engine.oracle import oracle, recall_oracle
from engine.requests import Requests, Selection
from engine.results import Record, canonical_key, decode, encode
from engine.scoring import batch_inputs
from engine.shapes import ModelShape

GRADIENT_TOKENS = 1024  # padded tokens a backward pass: it keeps every layer's activations
WHAT = ("heads", "gate", "heads-oracle", "ffns")


@dataclass(frozen=True)
class Scores:
    """Importance scores over n questions: (layer, head) for heads, (layer,) for FFNs; larger = more important.

    `tie_break` orders equal scores (oracles: mean gold log-likelihood lost, nats). `gate_heads` (n, choice, L, H) and
    `gate_ffns` (n, choice, L) are the signed gate gradients dLoss/dgate of each choice's mean loss over its `n_targets`
    (n, choice) continuation tokens, fp16, nan where a question has no such choice; `n_zero` counts those that are
    exactly 0. Of `heads` they are the gold choice's alone.
    """

    what: str
    n: int
    scores: np.ndarray
    tie_break: np.ndarray | None = None
    gate_heads: np.ndarray | None = None
    gate_ffns: np.ndarray | None = None
    n_targets: np.ndarray | None = None
    n_zero: int = 0
    cached: bool = False


def importance(
    models: Models, spec: LoadSpec, requests: Requests, selection: Selection, what: str, bos: bool | None, store: Any,
    mask: Mask | None = None,
) -> Iterator[Progress]:  # fmt: skip
    """Yields Progress, its value the Scores so far (oracles: only when finished).

    `heads`: Bansal et al.'s I_h from the gold choice. `gate`: mean |dLoss/dgate| of the gold choice (Michel et al.
    2019), with every choice's signed gradients kept. `heads-oracle`, `ffns`: accuracy lost when that one is pruned.
    Under a `mask`, of the model that it leaves (gradient scores only): what is pruned scores 0.
    """
    _check_mask(what, mask)
    if what == "ffns" or what == "heads-oracle":
        shape = identify(spec, store).shape
        for step in oracle(models, spec, requests, selection, what, bos, store):
            scores = None if step.value is None else replace(_drops(what, shape, step.value), cached=step.cached)
            yield replace(step, value=scores)
    elif what in WHAT:
        yield from _by_gradient(models, spec, requests, selection, what, bos, store, mask)
    else:
        raise UsageError(f"importance {what!r} is unknown; choose one of {', '.join(WHAT)}")


def recall_scores(
    identity: Identity, spec: LoadSpec, requests: Requests, selection: Selection, what: str, bos: bool | None,
    store: Any, mask: Mask | None = None,
) -> Scores | None:  # fmt: skip
    """The finished Scores if all of it is stored, else None; loads and computes nothing."""
    _check_mask(what, mask)
    if what in ("ffns", "heads-oracle"):
        answers = recall_oracle(identity, spec, requests, selection, what, bos, store)
        return None if answers is None else _drops(what, identity.shape, answers)
    parts = []
    for chunk in selection.chunks():
        record = _stored(_key(identity, spec, requests, chunk, what, bos, mask or Mask.full(identity.shape)), store)
        if record is None:
            return None
        parts.append(record)
    return replace(_scores(what, parts, selection.n), cached=True)


def _check_mask(what: str, mask: Mask | None) -> None:
    if mask is not None and not mask.is_full and what in ("ffns", "heads-oracle"):
        raise UsageError(f"importance {what!r} cannot be measured anew under a mask; choose heads or gate")


def gate_gradients(loaded: Loaded, rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each choice of each row, of its mean loss over the continuation's tokens, 0 where a row has fewer choices:

    (sum over positions of |dLoss/dgate| (row, choice, L, H), signed dLoss/dgate of heads (row, choice, L, H), of FFNs
    (row, choice, L)). The absolute value is per position: |sum over d_head of z * dLoss/dz|, the inner term of Bansal
    et al.'s I_h. Works on int8 weights, whose layers pass gradients to their inputs only.
    """
    import torch

    model, shape = loaded.model, loaded.identity.shape
    inputs = batch_inputs(rows, model.dtype, model.get_input_embeddings().weight.device)
    n_rows, length = inputs["input_ids"].shape
    n_choices = max(len(row.choices) for row in rows)
    absolute = np.zeros((n_rows, n_choices, shape.n_layers, shape.n_heads), np.float32)
    heads, ffns = np.zeros_like(absolute), np.zeros(absolute.shape[:3], np.float32)
    with torch.enable_grad(), _gates(loaded, n_rows, length) as (head_gates, ffn_gates):
        hidden = model.base_model(**inputs, use_cache=False).last_hidden_state
        read = [(index, number, position, target, 1 / len(row.choices[number].targets))
                for index, row in enumerate(rows) for number, position, target in row.read]  # fmt: skip
        at, number, position, target, weight = (
            torch.tensor(column, device=hidden.device) for column in zip(*read, strict=True)
        )
        logits = model.get_output_embeddings()(hidden[at, position]).float()
        losses = torch.nn.functional.cross_entropy(logits, target.to(logits.device), reduction="none")
        for choice in range(n_choices):
            # the rows do not touch each other, so one pass gives this choice's gradients in every row
            mine = (number == choice).to(losses.device)
            gradients = torch.autograd.grad(
                (losses[mine] * weight.to(losses.device)[mine]).sum(), [*head_gates, *ffn_gates],
                retain_graph=choice + 1 < n_choices,
            )  # fmt: skip
            by_head = torch.stack([gradient.float().cpu() for gradient in gradients[: shape.n_layers]], dim=1)
            absolute[:, choice], heads[:, choice] = by_head.abs().sum(2).numpy(), by_head.sum(2).numpy()  # over T
            ffns[:, choice] = torch.stack([gradient.float().cpu() for gradient in gradients[shape.n_layers :]], 1)
    return absolute, heads, ffns


@contextmanager
def _gates(loaded: Loaded, n_rows: int, length: int) -> Iterator[tuple[list[Any], list[Any]]]:
    """Gates of 1 on every head (row, T, H) and FFN (row,) while the context is open."""
    import torch

    shape, hooks = loaded.identity.shape, []
    head_gates, ffn_gates = [], []

    def on_heads(gate: Any) -> Any:
        def hook(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
            z = args[0].view(n_rows, length, shape.n_heads, shape.d_head)
            return ((z.float() * gate[..., None]).to(z.dtype).view(args[0].shape), *args[1:])

        return hook

    def on_ffn(gate: Any) -> Any:
        def hook(module: Any, args: tuple[Any, ...], output: Any) -> Any:
            branch = output.view(n_rows, length, shape.d_model)  # OPT flattens rows and positions
            return (branch.float() * gate[:, None, None]).to(output.dtype).view(output.shape)

        return hook

    try:
        for attention_out, ffn_out in loaded.family.layer_modules(loaded.model):
            device = next(attention_out.parameters()).device
            head_gates.append(torch.ones(n_rows, length, shape.n_heads, device=device, requires_grad=True))
            ffn_gates.append(torch.ones(n_rows, device=device, requires_grad=True))
            hooks.append(attention_out.register_forward_pre_hook(on_heads(head_gates[-1])))
            hooks.append(ffn_out.register_forward_hook(on_ffn(ffn_gates[-1])))
        yield head_gates, ffn_gates
    finally:
        for hook in hooks:
            hook.remove()


def _by_gradient(
    models: Models, spec: LoadSpec, requests: Requests, selection: Selection, what: str, bos: bool | None, store: Any,
    mask: Mask | None,
) -> Iterator[Progress]:  # fmt: skip
    identity, parts, all_cached = identify(spec, store), [], True
    mask = mask or Mask.full(identity.shape)
    for chunk in selection.chunks():
        key = _key(identity, spec, requests, chunk, what, bos, mask)
        record = _stored(key, store)
        if record is None:
            all_cached = False
            done = min(selection.n, len(parts) * len(chunk))
            loaded = yield from loaded_model(models, spec, done, selection.n)
            record = yield from _measured(loaded, spec, requests, chunk, what, bos, mask, (done, selection.n))
            store.put(key, encode(record))
        parts.append(record)
        scores = replace(_scores(what, parts, selection.n), cached=all_cached)
        yield Progress(scores.n, selection.n, scores, cached=all_cached)


def _measured(
    loaded: Loaded, spec: LoadSpec, requests: Requests, chunk: Sequence[int], what: str, bos: bool | None,
    mask: Mask, so_far: tuple[int, int],
) -> Generator[Progress, None, Record]:  # fmt: skip
    started, identity, shape = time.perf_counter(), loaded.identity, loaded.identity.shape
    questions = [requests.questions[index] for index in chunk]
    encoded = encode_questions(questions, loaded.tokenizer, with_bos(identity, bos), shape.n_ctx)
    golds = [question.golds[0] for question in questions]
    n_choices = max(map(len, encoded)) if what == "gate" else 1
    absolute = np.zeros((len(chunk), shape.n_layers, shape.n_heads), np.float32)
    heads = np.full((len(chunk), n_choices, shape.n_layers, shape.n_heads), np.nan, np.float16)
    ffns = np.full((len(chunk), n_choices, shape.n_layers), np.nan, np.float16)
    n_targets = np.zeros((len(chunk), n_choices), np.int32)
    lengths = np.zeros((len(chunk), 2), np.int64)  # positions that carry gradient; continuation tokens
    rows = [row for choices, gold in zip(encoded, golds, strict=True)
            for row in (_rows(choices) if what == "gate" else pack([choices[gold]]))]  # fmt: skip
    for group in _groups(rows):
        with pruned(loaded, mask):
            by_position, by_head, by_ffn = gate_gradients(loaded, group)
        places = [((index, number), choice) for index, row in enumerate(group)
                  for number, choice in enumerate(row.choices)]  # fmt: skip
        for at, choice in places:
            where = choice.question, choice.choice if what == "gate" else 0
            heads[where], ffns[where], n_targets[where] = by_head[at], by_ffn[at], len(choice.targets)
            if choice.choice == golds[choice.question]:
                absolute[choice.question] = by_position[at]
                lengths[choice.question] = len(choice.inputs), len(choice.targets)
        yield Progress(*so_far)
    receipt = make_receipt(identity, spec, requests, bos, time.perf_counter() - started) | {
        "kind": what,
        "mask": mask.text(),
    }
    arrays = {"absolute": absolute, "heads": heads, "ffns": ffns, "lengths": lengths,
              "gold": np.array(golds if what == "gate" else [0] * len(chunk), np.int64)}  # fmt: skip
    if what == "gate":
        arrays["n_targets"] = n_targets
    return Record(arrays, receipt)


def _rows(choices: Sequence[Encoded]) -> list[Row]:
    """Rows for one question's choices, packed where that is cheaper: one forward pass of the packed row and a backward
    pass for each choice, against both for each choice alone."""
    packed = pack(choices)
    together = sum(len(row.tokens) * (1 + len(row.choices)) for row in packed)
    alone = sum(2 * len(choice.inputs) for choice in choices)
    return packed if together < alone else [pack([choice])[0] for choice in choices]


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows with the same number of choices, longest first, at most GRADIENT_TOKENS padded tokens a group."""
    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: (-len(row.choices), -len(row.tokens))):
        first = groups[-1][0] if groups else row
        if (groups and len(first.choices) == len(row.choices)
                and (len(groups[-1]) + 1) * len(first.tokens) <= GRADIENT_TOKENS):  # fmt: skip
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _stored(key: str, store: Any) -> Record | None:
    """The chunk under `key`; None where it is missing, or is of a time when choices' lengths were not kept."""
    record = decode(store.get(key))
    if record is not None and record.receipt.get("kind") == "gate" and "n_targets" not in record.arrays:
        return None
    return record


def _scores(what: str, parts: Sequence[Record], limit: int) -> Scores:
    """Scores of the first `limit` questions of the stored chunks.

    I_h: sum over positions and examples, divided by the positions that carry gradient (sequence length - 1), the last
    layer by the number of continuation tokens, as llm-interpret at batch size 1.
    """
    n_choices = max(part.arrays["heads"].shape[1] for part in parts)

    def joined(name: str) -> np.ndarray:
        arrays = [part.arrays[name] for part in parts]
        if name in ("heads", "ffns", "n_targets"):
            none = 0 if name == "n_targets" else np.nan
            widths = [[(0, 0), (0, n_choices - array.shape[1]), *[(0, 0)] * (array.ndim - 2)] for array in arrays]
            arrays = [np.pad(array, width, constant_values=none) for array, width in zip(arrays, widths, strict=True)]
        return np.concatenate(arrays)[:limit]

    heads, ffns, lengths, gold = joined("heads"), joined("ffns"), joined("lengths"), joined("gold")
    n_targets = joined("n_targets") if what == "gate" else lengths[:, 1:]
    if what == "gate":
        scores = np.abs(heads[np.arange(len(gold)), gold].astype(np.float64)).mean(0)
    else:
        scores = joined("absolute").astype(np.float64).sum(0)
        scores[:-1] /= lengths[:, 0].sum()
        scores[-1] /= lengths[:, 1].sum()
    return Scores(what, len(gold), scores, None, heads, ffns, n_targets, int((heads == 0).sum()))


def _drops(what: str, shape: ModelShape, answers: Sequence[Answers]) -> Scores:
    """What each ablation costs; `answers` are the full model's, then one for each head or FFN."""
    full, ablated = answers[0], answers[1:]
    size = (shape.n_layers,) if what == "ffns" else (shape.n_layers, shape.n_heads)
    accuracy_drop = np.array([full.correct.mean() - each.correct.mean() for each in ablated]).reshape(size)
    gold = full.gold_log_likelihood_nats.mean()
    nats_drop = np.array([gold - each.gold_log_likelihood_nats.mean() for each in ablated]).reshape(size)
    return Scores(what, len(full), accuracy_drop, nats_drop, cached=True)


def _key(
    identity: Identity, spec: LoadSpec, requests: Requests, chunk: Sequence[int], what: str, bos: bool | None,
    mask: Mask,
) -> str:  # fmt: skip
    fields = numbers_key(identity, spec, bos) | {"questions": texts_digest(requests, chunk), "what": what,
                                                 "golds": [requests.questions[i].golds[0] for i in chunk]}  # fmt: skip
    return canonical_key("importance", fields if mask.is_full else fields | {"mask": mask.key()})
