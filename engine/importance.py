"""How much each head and FFN matters for a task: gradient scores in one backward pass, and the ablation oracle.

A gate of 1 multiplies every head's z and every FFN's output; its gradient is what all gradient scores are made of.
Gates are fp32 whatever the model's precision, one a position for heads, so that the model's output stays bit for bit
the same and the sums over d_head are taken in fp32. Each choice is a row of its own here, not packed.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.checkpoints import Identity
from engine.encoding import Encoded, encode_questions, pack
from engine.errors import UsageError
from engine.evaluation import (
    Answers,
    evaluate,
    loaded_model,
    make_receipt,
    numbers_key,
    recall,
    texts_digest,
    with_bos,
)
from engine.jobs import Progress
from engine.loading import Loaded, LoadSpec, Models, identify
from engine.masks import Mask, pruned
from engine.requests import Requests, Selection
from engine.results import Record, canonical_key, decode, encode
from engine.scoring import batch_inputs

GRADIENT_TOKENS = 1024  # padded tokens a backward pass: it keeps every layer's activations
WHAT = ("heads", "gate", "heads-oracle", "ffns")


@dataclass(frozen=True)
class Scores:
    """Importance scores over n questions: (layer, head) for heads, (layer,) for FFNs; larger = more important.

    `tie_break` orders equal scores (oracles: mean gold log-likelihood lost, nats). `gate_heads` (n, choice, L, H) and
    `gate_ffns` (n, choice, L) are the signed gate gradients dLoss/dgate of each choice's mean loss, fp16, nan where a
    question has no such choice; `n_zero` counts those that are exactly 0.
    """

    what: str
    n: int
    scores: np.ndarray
    tie_break: np.ndarray | None = None
    gate_heads: np.ndarray | None = None
    gate_ffns: np.ndarray | None = None
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
        yield from _oracle(models, spec, requests, selection, what, bos, store)
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
        full = recall(identity, spec, requests, selection, Mask.full(identity.shape), bos, store)
        ablated = []
        for mask in single_ablations(identity.shape, what):
            ablated.append(recall(identity, spec, requests, selection, mask, bos, store))
            if len(ablated[-1]) < selection.n:
                return None
        return _drops(what, identity, full, ablated) if len(full) == selection.n else None
    parts = []
    for chunk in selection.chunks():
        record = decode(store.get(_key(identity, spec, requests, chunk, what, bos, mask or Mask.full(identity.shape))))
        if record is None:
            return None
        parts.append(record)
    return replace(_scores(what, parts, selection.n), cached=True)


def single_ablations(shape: Any, what: str) -> list[Mask]:
    """One mask for each head (row by row) or each FFN, pruning just that one."""
    masks, full = [], Mask.full(shape)
    if what == "ffns":
        for layer in range(shape.n_layers):
            masks.append(replace(full, ffns=tuple(at != layer for at in range(shape.n_layers))))
        return masks
    for layer in range(shape.n_layers):
        for head in range(shape.n_heads):
            row = tuple(at != head for at in range(shape.n_heads))
            masks.append(replace(full, heads=(*full.heads[:layer], row, *full.heads[layer + 1 :])))
    return masks


def _check_mask(what: str, mask: Mask | None) -> None:
    if mask is not None and not mask.is_full and what in ("ffns", "heads-oracle"):
        raise UsageError(f"importance {what!r} cannot be measured anew under a mask; choose heads or gate")


def gate_gradients(loaded: Loaded, choices: Sequence[Encoded]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each of the encoded choices, of its mean loss over the continuation's tokens:

    (sum over positions of |dLoss/dgate| (row, L, H), signed dLoss/dgate of heads (row, L, H), of FFNs (row, L)).
    The absolute value is per position: |sum over d_head of z * dLoss/dz|, the inner term of Bansal et al.'s I_h.
    Works on int8 weights, whose layers pass gradients to their inputs only.
    """
    import torch

    model, shape = loaded.model, loaded.identity.shape
    rows = [pack([choice])[0] for choice in choices]
    device = model.get_input_embeddings().weight.device
    inputs = batch_inputs(rows, model.dtype, device)
    n_rows, length = inputs["input_ids"].shape
    with torch.enable_grad(), _gates(loaded, n_rows, length) as (head_gates, ffn_gates):
        hidden = model.base_model(**inputs, use_cache=False).last_hidden_state
        read = [(index, position, target) for index, row in enumerate(rows) for _, position, target in row.read]
        at, position, target = (torch.tensor(column, device=hidden.device) for column in zip(*read, strict=True))
        logits = model.get_output_embeddings()(hidden[at, position]).float()
        losses = torch.nn.functional.cross_entropy(logits, target.to(logits.device), reduction="none")
        weights = torch.tensor([1 / len(rows[index].read) for index, _, _ in read], device=losses.device)
        gradients = torch.autograd.grad((losses * weights).sum(), [*head_gates, *ffn_gates])
    by_head = torch.stack([gradient.float().cpu() for gradient in gradients[: shape.n_layers]], dim=1)  # (row, L, T, H)
    by_ffn = torch.stack([gradient.float().cpu() for gradient in gradients[shape.n_layers :]], dim=1)  # (row, L)
    return by_head.abs().sum(2).numpy(), by_head.sum(2).numpy(), by_ffn.numpy()


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
        record = decode(store.get(key))
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
    flat = [choice for choices, gold in zip(encoded, golds, strict=True) for choice in choices
            if what == "gate" or choice.choice == gold]  # fmt: skip
    n_choices = max(map(len, encoded)) if what == "gate" else 1
    absolute = np.zeros((len(chunk), shape.n_layers, shape.n_heads), np.float32)
    heads = np.full((len(chunk), n_choices, shape.n_layers, shape.n_heads), np.nan, np.float16)
    ffns = np.full((len(chunk), n_choices, shape.n_layers), np.nan, np.float16)
    lengths = np.zeros((len(chunk), 2), np.int64)  # positions that carry gradient; continuation tokens
    for group in _groups(flat):
        with pruned(loaded, mask):
            by_position, by_head, by_ffn = gate_gradients(loaded, group)
        for row, choice in enumerate(group):
            column = choice.choice if what == "gate" else 0
            heads[choice.question, column], ffns[choice.question, column] = by_head[row], by_ffn[row]
            if choice.choice == golds[choice.question]:
                absolute[choice.question] = by_position[row]
                lengths[choice.question] = len(choice.inputs), len(choice.targets)
        yield Progress(*so_far)
    receipt = make_receipt(identity, spec, requests, bos, time.perf_counter() - started) | {
        "kind": what,
        "mask": mask.text(),
    }
    arrays = {"absolute": absolute, "heads": heads, "ffns": ffns, "lengths": lengths,
              "gold": np.array(golds if what == "gate" else [0] * len(chunk), np.int64)}  # fmt: skip
    return Record(arrays, receipt)


def _groups(choices: Sequence[Encoded]) -> list[list[Encoded]]:
    groups: list[list[Encoded]] = []
    for choice in sorted(choices, key=lambda choice: -len(choice.inputs)):
        if groups and (len(groups[-1]) + 1) * len(groups[-1][0].inputs) <= GRADIENT_TOKENS:
            groups[-1].append(choice)
        else:
            groups.append([choice])
    return groups


def _scores(what: str, parts: Sequence[Record], limit: int) -> Scores:
    """Scores of the first `limit` questions of the stored chunks.

    I_h: sum over positions and examples, divided by the positions that carry gradient (sequence length - 1), the last
    layer by the number of continuation tokens, as llm-interpret at batch size 1.
    """
    n_choices = max(part.arrays["heads"].shape[1] for part in parts)

    def joined(name: str) -> np.ndarray:
        arrays = [part.arrays[name] for part in parts]
        if name in ("heads", "ffns"):
            widths = [[(0, 0), (0, n_choices - array.shape[1]), *[(0, 0)] * (array.ndim - 2)] for array in arrays]
            arrays = [np.pad(array, width, constant_values=np.nan) for array, width in zip(arrays, widths, strict=True)]
        return np.concatenate(arrays)[:limit]

    heads, ffns, lengths, gold = joined("heads"), joined("ffns"), joined("lengths"), joined("gold")
    if what == "gate":
        scores = np.abs(heads[np.arange(len(gold)), gold].astype(np.float64)).mean(0)
    else:
        scores = joined("absolute").astype(np.float64).sum(0)
        scores[:-1] /= lengths[:, 0].sum()
        scores[-1] /= lengths[:, 1].sum()
    return Scores(what, len(gold), scores, None, heads, ffns, int((heads == 0).sum()))


def _oracle(
    models: Models, spec: LoadSpec, requests: Requests, selection: Selection, what: str, bos: bool | None, store: Any
) -> Iterator[Progress]:
    identity = identify(spec, store)
    masks = [Mask.full(identity.shape), *single_ablations(identity.shape, what)]
    total, measured, all_cached = len(masks) * selection.n, [], True
    for number, mask in enumerate(masks):
        answers = None
        for step in evaluate(models, spec, requests, selection, mask, bos, store):
            answers = step.value if step.value is not None else answers
            all_cached &= step.cached
            yield Progress(
                number * selection.n + step.done, total, message=step.message or mask.text(), cached=all_cached
            )
        assert answers is not None
        measured.append(answers)
    scores = replace(_drops(what, identity, measured[0], measured[1:]), cached=all_cached)
    yield Progress(total, total, scores, cached=all_cached)


def _drops(what: str, identity: Identity, full: Answers, ablated: Sequence[Answers]) -> Scores:
    shape = (identity.shape.n_layers,) if what == "ffns" else (identity.shape.n_layers, identity.shape.n_heads)
    accuracy_drop = np.array([full.correct.mean() - answers.correct.mean() for answers in ablated]).reshape(shape)
    gold = full.gold_log_likelihood_nats.mean()
    nats_drop = np.array([gold - answers.gold_log_likelihood_nats.mean() for answers in ablated]).reshape(shape)
    return Scores(what, len(full), accuracy_drop, nats_drop, cached=True)


def _key(
    identity: Identity, spec: LoadSpec, requests: Requests, chunk: Sequence[int], what: str, bos: bool | None,
    mask: Mask,
) -> str:  # fmt: skip
    fields = numbers_key(identity, spec, bos) | {"questions": texts_digest(requests, chunk), "what": what,
                                                 "golds": [requests.questions[i].golds[0] for i in chunk]}  # fmt: skip
    return canonical_key("importance", fields if mask.is_full else fields | {"mask": mask.key()})
