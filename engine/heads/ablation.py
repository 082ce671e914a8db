"""What single heads do to per-token losses, each ablated in turn, and how that moves the in-context-learning score.

Two kinds (Olsson et al. 2022). *Full*: the head gives 0 and everything behind it is computed anew, as a mask does.
*Pattern-preserving*: the same, but every attention pattern is forced to what it was with nothing ablated, so that what
later heads look at does not change, only what they find there. In both the head may give its mean over a reference text
in place of 0 (*mean* ablation): zero is an output that later layers never saw in training.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.accuracy.evaluation import loaded_model, numbers_key, with_bos
from engine.errors import UsageError
from engine.heads.probes import story
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import Loaded, LoadSpec, Models, identify
from engine.models.masks import Mask, Means, pruned
from engine.models.patterns import Patterns, visited
from engine.records import Record, canonical_key, decode, encode
from engine.shapes import ModelShape
from engine.texts.incontext import EARLY, LATE, MIN_TOKENS, over_texts, too_short
from engine.texts.passages import checked, text_digest
from engine.texts.tokenloss import beginning_id, log_probabilities, tokenized

KINDS = ("full", "pattern-preserving")
FILLS = ("zero", "mean")


@dataclass(frozen=True)
class Attribution:
    """Per-token losses of some texts with each head ablated in turn, in nats.

    One array a text: `base` (n,) with nothing ablated, `ablated` (layer, head, n). Of each text the first 512 tokens
    (or the model's window, where that is shorter). The first is nan without BOS.
    """

    base: tuple[np.ndarray, ...]
    ablated: tuple[np.ndarray, ...]

    def icl(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(mean, low, high), each (layer, head): in-context-learning score without the head minus the score with it.

        Positive: the model learns less in context without it. The interval is over texts, 95 %. HeadroomError: no text
        has the 512 tokens that a score needs.
        """
        moved = [_score(ablated) - _score(base) for base, ablated in zip(self.base, self.ablated, strict=True)
                 if len(base) >= MIN_TOKENS]  # fmt: skip
        if not moved:
            raise too_short(max(map(len, self.base), default=0))
        return over_texts(np.stack(moved))

    def before_and_after(self, difference: Sequence[np.ndarray], seed: int = 0) -> np.ndarray:
        """(layer, head): how much of a change of the losses each head accounts for (Olsson et al., before-and-after
        vector).

        `difference` holds, text by text, per-token losses of model B minus model A. One random token of each text makes
        a vector of them, scaled to length 1; a head's attribution is its dot product with what ablating the head adds
        to the losses of the same tokens, in nats.
        """
        generator, before, moved = np.random.default_rng(seed), [], []
        for base, ablated, change in zip(self.base, self.ablated, difference, strict=True):
            known = np.flatnonzero(np.isfinite(base) & np.isfinite(change[: len(base)]))
            if len(known):
                token = generator.choice(known)
                before.append(change[token])
                moved.append(ablated[..., token] - base[token])
        vector = np.array(before)
        return np.tensordot(vector / max(float(np.linalg.norm(vector)), 1e-30), np.stack(moved), 1)


def attribute(
    models: Models, spec: LoadSpec, texts: Sequence[str], mask: Mask, kind: str, fill: str, bos: bool | None, store: Any
) -> Iterator[Progress]:
    """Yields Progress in forward passes, its value the Attribution of the texts finished so far; each is stored.

    `mask` is what is pruned already; a head of it changes nothing when ablated. UsageError: no such kind or fill.
    """
    _check(kind, fill)
    texts = [checked(text) for text in texts]
    identity = identify(spec, store)
    shape = identity.shape
    each, records, all_cached, means = shape.n_heads_total + 1, [], True, None
    for number, text in enumerate(texts):
        record = decode(store.get(_key(identity, spec, text, mask, kind, fill, bos)))
        if record is None:
            all_cached = False
            done, total = number * each, len(texts) * each
            loaded = yield from loaded_model(models, spec, done, total)
            if fill == "mean" and means is None:
                means = mean_outputs(loaded, _reading(loaded, story(), bos).inputs, mask)
            record = yield from _measured(loaded, spec, text, mask, kind, means, bos, (done, total))
            store.put(_key(identity, spec, text, mask, kind, fill, bos), encode(record))
        records.append(record)
        yield Progress((number + 1) * each, len(texts) * each, _attribution(records), cached=all_cached)


def recall_attribution(
    identity: Identity, spec: LoadSpec, texts: Sequence[str], mask: Mask, kind: str, fill: str, bos: bool | None,
    store: Any,
) -> Attribution | None:  # fmt: skip
    """The attribution where every text's is stored, else None; loads and computes nothing."""
    _check(kind, fill)
    records = []
    for text in texts:
        record = decode(store.get(_key(identity, spec, text, mask, kind, fill, bos)))
        if record is None:
            return None
        records.append(record)
    return _attribution(records)


def patterns_of(loaded: Loaded, inputs: Any, mask: Mask) -> Patterns:
    """The attention pattern (1, H, T, T) of every layer under `mask`; `inputs` (1, T) token ids."""
    import torch

    found = {}
    with torch.inference_mode(), pruned(loaded, mask), visited(loaded, lambda layer, pattern, z, values:
                                                                found.update({layer: pattern})):  # fmt: skip
        loaded.model.base_model(input_ids=inputs, use_cache=False)
    return found


def mean_outputs(loaded: Loaded, inputs: Any, mask: Mask) -> Means:
    """What each head and FFN gives on average over the positions of `inputs` (1, T), under `mask`."""
    import torch

    shape = loaded.identity.shape
    heads = np.zeros((shape.n_layers, shape.n_heads, shape.d_head), np.float32)
    ffns = np.zeros((shape.n_layers, shape.d_model), np.float32)
    hooks = []

    def note(layer: int, attention_out: Any, ffn_out: Any) -> None:
        def z(module: Any, args: tuple[Any, ...]) -> None:
            heads[layer] = args[0].float().flatten(0, -2).mean(0).view(shape.n_heads, -1).cpu().numpy()

        def output(module: Any, args: Any, given: Any) -> None:
            ffns[layer] = given.float().flatten(0, -2).mean(0).cpu().numpy()

        hooks.extend([attention_out.register_forward_pre_hook(z), ffn_out.register_forward_hook(output)])

    try:
        with torch.inference_mode(), pruned(loaded, mask):  # its hooks first, so that ours see what is left
            for layer, modules in enumerate(loaded.family.layer_modules(loaded.model)):
                note(layer, *modules)
            loaded.model.base_model(input_ids=inputs, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return Means(heads, ffns)


def single(shape: ModelShape, layer: int, head: int) -> Mask:
    """The mask that prunes one head and nothing else."""
    heads = np.ones((shape.n_layers, shape.n_heads), bool)
    heads[layer, head] = False
    return Mask.from_arrays(heads, np.ones(shape.n_layers, bool))


def _measured(
    loaded: Loaded, spec: LoadSpec, text: str, mask: Mask, kind: str, means: Means | None, bos: bool | None,
    so_far: tuple[int, int],
) -> Generator[Progress, None, Record]:  # fmt: skip
    started, (done, total) = time.perf_counter(), so_far
    shape = loaded.identity.shape
    reading, nothing = _reading(loaded, text, bos), Mask.full(shape)
    forced = patterns_of(loaded, reading.inputs, mask) if kind == "pattern-preserving" else None
    base = _losses(loaded, reading, mask, nothing, None, forced)
    ablated = np.zeros((shape.n_layers, shape.n_heads, len(base)), np.float32)
    for layer in range(shape.n_layers):
        for head in range(shape.n_heads):
            if mask.heads[layer][head]:
                ablated[layer, head] = _losses(loaded, reading, mask, single(shape, layer, head), means, forced)
            else:
                ablated[layer, head] = base
            done += 1
            yield Progress(done, total, message=f"without L{layer}H{head}")
    receipt = numbers_key(loaded.identity, spec, bos) | {
        "kind": "attribution", "name": loaded.identity.name, "mask": mask.text(), "ablation": kind,
        "fill": "zero" if means is None else "mean", "seconds": round(time.perf_counter() - started, 4),
    }  # fmt: skip
    return Record({"base": base, "ablated": ablated}, receipt)


@dataclass(frozen=True)
class _Reading:
    """`inputs` (1, T) of which each position predicts one of `targets`; before them come `n_lead` tokens without."""

    inputs: Any
    targets: Any
    n_lead: int


def _reading(loaded: Loaded, text: str, bos: bool | None) -> _Reading:
    import torch

    ids = tokenized(text, loaded.tokenizer)[0][: min(MIN_TOKENS, loaded.identity.shape.n_ctx)].tolist()
    begin = beginning_id(loaded.tokenizer, with_bos(loaded.identity, bos))
    read, lead = (ids, 1) if begin is None else ([begin, *ids], 0)
    device = loaded.model.get_input_embeddings().weight.device
    return _Reading(torch.tensor([read[:-1] or read], device=device),
                    torch.tensor(ids[lead:], dtype=torch.long, device=device), lead)  # fmt: skip


def _losses(
    loaded: Loaded, reading: _Reading, mask: Mask, ablated: Mask, means: Means | None, forced: Patterns | None
) -> np.ndarray:
    """(n,) losses; nan in front where the first token has none."""
    import torch

    attending = nullcontext() if forced is None else visited(loaded, forced=forced)
    with torch.inference_mode(), pruned(loaded, mask), pruned(loaded, ablated, means), attending:
        hidden = loaded.model.base_model(input_ids=reading.inputs, use_cache=False).last_hidden_state[0]
        found = [log_p for _, _, log_p in log_probabilities(loaded, hidden[: len(reading.targets)], reading.targets)]
    losses = [-log_p.cpu().numpy() for log_p in found]
    return np.concatenate([np.full(reading.n_lead, np.nan, np.float32), *losses])


def _score(losses: np.ndarray) -> np.ndarray:
    return losses[..., LATE - 1] - losses[..., EARLY - 1]


def _attribution(records: Sequence[Record]) -> Attribution:
    return Attribution(tuple(record.arrays["base"] for record in records),
                       tuple(record.arrays["ablated"] for record in records))  # fmt: skip


def _check(kind: str, fill: str) -> None:
    if kind not in KINDS:
        raise UsageError(f"ablation {kind!r} is unknown; choose one of {', '.join(KINDS)}")
    if fill not in FILLS:
        raise UsageError(f"fill {fill!r} is unknown; choose one of {', '.join(FILLS)}")


def _key(identity: Identity, spec: LoadSpec, text: str, mask: Mask, kind: str, fill: str, bos: bool | None) -> str:
    fields = numbers_key(identity, spec, bos) | {
        "text": text_digest(text), "mask": mask.key(), "ablation": kind, "fill": fill,
        "reference": text_digest(story()) if fill == "mean" else None, "tokens": MIN_TOKENS,
    }  # fmt: skip
    return canonical_key("attribution", fields)
