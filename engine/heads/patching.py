"""Activation patching (Meng et al. 2202.05262): which layers and positions make two prompts end differently.

Prompts A and B have equally many tokens. A is read with B's residual stream, attention output, or FFN output at one
layer and position, or with B's output of one head at the last token. The effect is the share of the difference between
the logits of two answers, B's minus A's, that comes back: 0 as in A, 1 as in B. Each layer is one batch of all
positions, from that layer on; all heads are one batch (`engine.heads.last_token`). Positions before the first token in
which the prompts differ have an effect of 0 and are not read.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.restarts import kept, starting_at
from engine.accuracy.scoring import hidden_of, some_logits
from engine.errors import HeadroomError, UsageError
from engine.heads.last_token import head_outputs, hidden_with
from engine.measurement import Measurement, by_name
from engine.models.loading import Loaded
from engine.models.session import Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import pack_strings, read, unpack_strings
from engine.records import Record, canonical_key
from engine.texts.passages import checked, text_digest

if TYPE_CHECKING:
    from torch import Tensor

HEADS = "heads"
KINDS = {
    "stream": "residual stream before layer",
    "attention": "attention output of layer",
    "ffn": "FFN output of layer",
    HEADS: "output of one head at the last token, layer",
}
MAX_TOKENS = 128


@dataclass(frozen=True)
class Patching:
    """What is patched: prompts `a` and `b`, one of KINDS, and the `answers` after each and a space, of which the first
    tokens count; without answers, the likeliest next token of each prompt."""

    a: str
    b: str
    kind: str = "stream"
    answers: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"kind {self.kind!r} is unknown; choose one of {', '.join(KINDS)}")


@dataclass(frozen=True)
class PatchMap:
    """What patching gives so far.

    kind: what is patched, one of KINDS
    effects: by layer, (n,) by position, or of heads (H,)
    tokens: of both prompts
    answers: of both
    differences: the logit of B's answer minus that of A's, after A and after B
    """

    kind: str
    effects: dict[int, np.ndarray]
    tokens: tuple[list[str], list[str]]
    answers: tuple[str, str]
    differences: tuple[float, float]


def patch_map(target: Target, wanted: Patching) -> Measurement[PatchMap]:
    """Returns the PatchMap so far. HeadroomError: the prompts are not equally long, are too
    long or the same, or their answers begin with the same token."""
    a, b = checked(wanted.a), checked(wanted.b)
    about = {"a": text_digest(a), "b": text_digest(b), "patch": wanted.kind}
    about |= {} if wanted.answers is None else {"answers": [text_digest(answer) for answer in wanted.answers]}
    shapes: dict[str, tuple[int | str, ...]] = {"effects": ("n",), "token_ids": (2, "n"), "answers": (2,)}
    shapes |= {"differences": (2,), "strings": ("bytes",)}
    n_layers, pieces = target.shape.n_layers, dict[str, Piece]()
    if wanted.kind == HEADS:
        key, of_heads = canonical_key("patching", target.key() | about), (n_layers, target.shape.n_heads)
        measure = partial(_measured_heads, bos=target.bos, wanted=wanted)
        read_for = 3 * len(a) + target.shape.n_heads * n_layers
        pieces[HEADS] = Piece(key, 1, shapes | {"effects": of_heads}, measure, partial(float, read_for))
        return by_name(target, pieces, lambda _, record: record).map(partial(_as_map, wanted.kind))
    for layer in range(n_layers):
        key = canonical_key("patching", target.key() | about | {"layer": layer})
        read_for = len(a) * (2 + len(a) / 4 * (n_layers - layer) / n_layers)  # each position is a row of all tokens
        measure = partial(_measured, bos=target.bos, wanted=wanted, layer=layer)
        pieces[str(layer)] = Piece(key, 1, shapes, measure, partial(float, read_for))
    return by_name(target, pieces, lambda _, record: record).map(partial(_as_map, wanted.kind))


def _measured(loaded: Loaded, bos: bool, wanted: Patching, layer: int) -> Measuring:
    import torch

    yield Progress(0, 1, message=f"patching layer {layer}", share=0.0)
    ids = _token_ids(loaded, bos, wanted)
    n = ids.shape[1]
    with torch.inference_mode():
        streams, outputs, logits = _both(loaded, ids, layer, wanted.kind)
        answers = _answers(loaded, wanted, logits)
        before, after = (float(each[answers[1]] - each[answers[0]]) for each in logits)
        places = torch.arange(int((ids[0] != ids[1]).nonzero()[0]), n)
        rows, each = streams[:1].repeat(len(places), 1, 1), torch.arange(len(places))
        if wanted.kind == "stream":
            rows[each, places] = streams[1, places]
        with ExitStack() as hooks:
            if wanted.kind != "stream":
                hooks.enter_context(_replaced(_module(loaded, wanted.kind, layer), outputs[1], places))
            hooks.enter_context(starting_at(loaded, layer, rows))
            last = hidden_of(loaded, ids[:1].expand(len(places), -1))[:, -1]
        patched = torch.cat([logits[:, [*answers]] for _, logits in some_logits(loaded, last)])
    difference = (patched[:, 1] - patched[:, 0]).cpu().numpy()
    effects = np.zeros(n, np.float32)
    effects[places.numpy()] = (difference - before) / (after - before)
    return _packed(loaded, effects, ids, answers, (before, after), {"layer": layer})


def _measured_heads(loaded: Loaded, bos: bool, wanted: Patching) -> Measuring:
    import torch

    yield Progress(0, 1, message="patching heads", share=0.0)
    ids = _token_ids(loaded, bos, wanted)
    with torch.inference_mode():
        rows = hidden_with(loaded, ids[0].tolist(), head_outputs(loaded, ids[1].tolist()))
        of_both = torch.cat([rows[:1], hidden_of(loaded, ids[1:])[:, -1]])
        logits = torch.cat([logits for _, logits in some_logits(loaded, of_both)])
        answers = _answers(loaded, wanted, logits)
        last = torch.cat([of_both, rows[1:]])
        found = torch.cat([logits[:, [*answers]] for _, logits in some_logits(loaded, last)])
    before, after, *patched = (found[:, 1] - found[:, 0]).tolist()
    shape = loaded.identity.shape
    effects = ((np.array(patched) - before) / (after - before)).astype(np.float32)
    return _packed(loaded, effects.reshape(shape.n_layers, shape.n_heads), ids, answers, (before, after), {})


def _packed(
    loaded: Loaded, effects: np.ndarray, ids: Tensor, answers: tuple[int, int], differences: tuple[float, float],
    about: dict[str, Any],
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:  # fmt: skip
    """Returns the arrays of a record, and its receipt."""
    arrays = {"effects": effects, "token_ids": ids.numpy(), "answers": np.array(answers)}
    arrays["differences"] = np.array(differences, np.float32)
    shown = np.concatenate([arrays["token_ids"].ravel(), arrays["answers"]])
    return arrays | {"strings": pack_strings(shown, loaded.tokenizer)}, {"kind": "patching", **about}


def _token_ids(loaded: Loaded, bos: bool, wanted: Patching) -> Tensor:
    """Returns (2, n): the tokens of both prompts."""
    import torch

    texts = [_tokens(loaded, text, bos) for text in (wanted.a, wanted.b)]
    if len(texts[0]) != len(texts[1]):
        raise HeadroomError(
            f"prompt A has {len(texts[0])} tokens and prompt B {len(texts[1])}; write them equally long"
        )
    if np.array_equal(texts[0], texts[1]):
        raise HeadroomError("prompts A and B have the same tokens; change one of them")
    return torch.from_numpy(np.stack(texts).astype(np.int64))


def _tokens(loaded: Loaded, text: str, bos: bool) -> np.ndarray:
    most = min(MAX_TOKENS, loaded.identity.shape.n_ctx) - bos
    reading = read(text, loaded.tokenizer, bos, most)
    if reading.n_left_out:
        raise HeadroomError(f"prompt {text[:40]!r} has more than {most} tokens; take a shorter one")
    return reading.inputs


def _both(loaded: Loaded, ids: Tensor, layer: int, kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Returns of both prompts the input of the layer and the output of its module of this kind, (2, n, d_model) each,
    and the last logits (2, V)."""
    import torch

    outputs: dict[int, Tensor] = {}

    def keep(module: Any, args: Any, output: Tensor) -> None:
        outputs[0] = output.reshape(*ids.shape, -1)

    with kept(loaded, {layer}) as streams, ExitStack() as hooks:
        hooks.enter_context(_module(loaded, kind, layer).register_forward_hook(keep))
        last = hidden_of(loaded, ids)[:, -1]
    logits = torch.cat([logits for _, logits in some_logits(loaded, last)])
    return streams[layer], outputs[0], logits


def _module(loaded: Loaded, kind: str, layer: int) -> Any:
    """Returns the module whose output is patched; of the stream, one that is not."""
    return loaded.family.layer_modules(loaded.model)[layer][kind == "ffn"]


def _replaced(module: Any, values: Tensor, places: Tensor) -> Any:
    """Returns the hook, to be removed, by which each row has the output at one of `places`, its own, from `values`."""
    import torch

    def replace(module: Any, args: Any, output: Tensor) -> Tensor:
        found = output.clone()
        found.view(len(places), len(values), -1)[torch.arange(len(places)), places] = values[places]
        return found

    return module.register_forward_hook(replace)


def _answers(loaded: Loaded, wanted: Patching, logits: Tensor) -> tuple[int, int]:
    """Returns the first token of each answer."""
    if wanted.answers is None:
        found = tuple(int(each.argmax()) for each in logits)
    else:
        found = tuple(int(read(f" {answer}", loaded.tokenizer, False, 1).inputs[0]) for answer in wanted.answers)
    if found[0] == found[1]:
        names = loaded.tokenizer.batch_decode([[each] for each in found])
        raise HeadroomError(f"both answers begin with {names[0]!r}; give two answers that begin differently")
    return found[0], found[1]


def _as_map(kind: str, records: dict[str, Record]) -> PatchMap | None:
    if not records:
        return None
    arrays = next(iter(records.values())).arrays
    strings = unpack_strings(arrays["strings"])
    tokens = [[strings[each] for each in ids] for ids in arrays["token_ids"].tolist()]
    answers = [strings[each] for each in arrays["answers"].tolist()]
    differences = [float(each) for each in arrays["differences"]]
    if HEADS in records:
        effects = dict(enumerate(arrays["effects"]))
    else:
        effects = {int(layer): record.arrays["effects"] for layer, record in records.items()}
    return PatchMap(kind, effects, (tokens[0], tokens[1]), (answers[0], answers[1]), (differences[0], differences[1]))
