"""Activation patching (Meng et al. 2202.05262): which layers and positions make two prompts end differently.

Prompts A and B have equally many tokens. A is read with B's residual stream, attention output, or FFN output at one
layer and position, or with B's output of one head at the last token. The effect is the share of the difference between
the logits of two answers, B's minus A's, that comes back: 0 as in A, 1 as in B. A's own activations are patched into it
too, which moves nothing but by rounding: a difference of less than twice that has no shares.

Positions before the first token in which the prompts differ have an effect of 0 and are not read. The others are rows
in a few batches for a few layers: each row joins at its layer, and reads the tokens from its batch's first position on;
all heads are one batch (`engine.heads.last_token`). A pair of positions, one of B and the one of A that gets its
activation, is one batch over all layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.restarts import kept
from engine.accuracy.scoring import hidden_of, some_logits
from engine.errors import HeadroomError, UsageError, refuse_unknown
from engine.heads.last_token import (
    PromptRead,
    head_outputs,
    hidden_after,
    hidden_changed,
    hidden_with,
    read_prompt,
    smears,
)
from engine.measurement import Measurement, by_name
from engine.models.loading import Loaded
from engine.models.session import Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import front, pack_strings, read, unpack_strings
from engine.records import Record, canonical_key
from engine.statistics import share_of
from engine.texts.passages import checked, text_digest
from engine.timing.workload import CHARACTERS_A_TOKEN

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
AT_ONCE = 6  # layers of a record
BATCHES = 5  # of their positions: the later ones need no tokens before them
CLEARLY = 2  # times what rounding moves, from which a difference has shares


@dataclass(frozen=True)
class Patching:
    """What is patched: prompts `a` and `b`, one of KINDS, and the `answers` after each and a space, of which the first
    tokens count; without answers, the likeliest next token of each prompt. With a `pair`, only the activation at its
    position of B, put at its position of A; negative ones count from the end."""

    a: str
    b: str
    kind: str = "stream"
    answers: tuple[str, str] | None = None
    pair: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        refuse_unknown("kind", self.kind, KINDS)
        if self.pair is not None and self.kind == HEADS:
            raise UsageError("heads are patched at the last token alone; choose another kind for a pair of positions")


@dataclass(frozen=True)
class PatchMap:
    """What patching gives so far.

    kind: what is patched, one of KINDS
    effects: by layer, (n,) by position, of heads (H,), or of a pair (1,); nan unless the difference `is_clear`
    tokens: of both prompts
    answers: of both
    differences: the logit of B's answer minus that of A's, after A and after B
    rounding: how far this moves when A's own activations are patched into it, at least a step of the precision
    pair: the position of B and the one of A, if that is all that was patched
    """

    kind: str
    effects: dict[int, np.ndarray]
    tokens: tuple[list[str], list[str]]
    answers: tuple[str, str]
    differences: tuple[float, float]
    rounding: float
    pair: tuple[int, int] | None = None

    @property
    def is_clear(self) -> bool:
        """Whether the prompts differ by more than rounding."""
        return abs(self.differences[1] - self.differences[0]) > CLEARLY * self.rounding

    @property
    def unclear(self) -> str:
        """Returns the reason for leaving out the shares; "" if they are shown."""
        if self.is_clear:
            return ""
        between = abs(self.differences[1] - self.differences[0])
        return (f"no shares: the prompts differ by {between:.2g}, and rounding in this precision alone moves "
                f"{self.rounding:.2g}; choose other answers, or a higher precision")  # fmt: skip


def patch_map(target: Target, wanted: Patching) -> Measurement[PatchMap]:
    """Returns the PatchMap so far. HeadroomError: the prompts are not equally long, are too
    long or the same, their answers begin with the same token, or they have no such pair of positions."""
    a, b = checked(wanted.a), checked(wanted.b)
    about = {"a": text_digest(a), "b": text_digest(b), "patch": wanted.kind}
    about |= {} if wanted.answers is None else {"answers": [text_digest(answer) for answer in wanted.answers]}
    shapes: dict[str, tuple[int | str, ...]] = {"moved": ("n",), "token_ids": (2, "n"), "answers": (2,)}
    shapes |= {"differences": (2,), "rounding": (1,), "strings": ("bytes",)}
    n_layers, pieces = target.shape.n_layers, dict[str, Piece]()
    if wanted.kind == HEADS:
        key, of_heads = canonical_key("patching", target.key() | about), (n_layers, target.shape.n_heads)
        measure = partial(_measured_heads, bos=target.bos, wanted=wanted)
        read_for = 3 * len(a) + target.shape.n_heads * n_layers
        pieces[HEADS] = Piece(key, 1, shapes | {"moved": of_heads}, measure, partial(float, read_for))
    elif wanted.pair is not None:
        key = canonical_key("patching", target.key() | about | {"pair": [*wanted.pair]})
        n_tokens, at = len(a) / CHARACTERS_A_TOKEN, wanted.pair[1]
        read_for = 3 * len(a) + CHARACTERS_A_TOKEN * n_layers / 2 * (-at if at < 0 else max(1, n_tokens - at))
        measure = partial(_measured, bos=target.bos, wanted=wanted, layers=range(n_layers))
        pieces["0"] = Piece(key, 1, shapes | {"moved": (n_layers, 1)}, measure, partial(float, read_for))
    else:
        for first in range(0, n_layers, AT_ONCE):
            layers = range(first, min(n_layers, first + AT_ONCE))
            key = canonical_key("patching", target.key() | about | {"layers": [*layers]})
            share = sum(n_layers - layer for layer in layers) / n_layers  # of the passes over all layers
            read_for = len(a) * (2 + share * len(a) / 4 * (1 + 1 / BATCHES) / 2)  # each position is a row
            measure = partial(_measured, bos=target.bos, wanted=wanted, layers=layers)
            pieces[str(first)] = Piece(
                key, 1, shapes | {"moved": (len(layers), "n")}, measure, partial(float, read_for)
            )
    return by_name(target, pieces, lambda _, record: record).map(partial(_as_map, wanted))


def _measured(loaded: Loaded, bos: bool, wanted: Patching, layers: range) -> Measuring:
    import torch

    yield Progress(0, 1, message=f"patching layers from {layers.start}", share=0.0)
    ids = _token_ids(loaded, bos, wanted)
    with torch.inference_mode():
        prompt = read_prompt(loaded, ids[0].tolist())
        values, logits = _read_both(loaded, ids, layers, wanted.kind)
        answers = _answers(loaded, wanted, logits)
        pairs = _pairs(wanted.pair, ids)
        own = {layer: each[0, pairs[1, :1]] for layer, each in values.items()}
        unmoved = _patched(loaded, ids[0], prompt, wanted.kind, own, pairs[1, :1])
        batches = [pairs] if smears(loaded) else pairs.split(-(-pairs.shape[1] // BATCHES), dim=1)
        differences = []
        for done, (sources, places) in enumerate(batches, 1):
            taken = {layer: each[1, sources] for layer, each in values.items()}
            hidden = _patched(loaded, ids[0], prompt, wanted.kind, taken, places)
            found = torch.cat([logits[:, [*answers]] for _, logits in some_logits(loaded, hidden)])
            differences.append((found[:, 1] - found[:, 0]).view(len(layers), -1))
            yield Progress(0, 1, message=f"patching layers from {layers.start}", share=done / len(batches))
        packed = _packed(loaded, ids, answers, logits, unmoved)
    moved = np.zeros((len(layers), ids.shape[1] if wanted.pair is None else 1), np.float32)
    moved[:, -pairs.shape[1] :] = torch.cat(differences, 1).cpu().numpy() - packed["differences"][0]
    return packed | {"moved": moved}, {"kind": "patching", "layer": layers.start}


def _pairs(pair: tuple[int, int] | None, ids: Tensor) -> Tensor:
    """Returns (2, place): the positions of B and of A; without a `pair`, all from the first one that differs."""
    import torch

    n = ids.shape[1]
    if pair is None:
        return torch.arange(int((ids[0] != ids[1]).nonzero()[0]), n).expand(2, -1)
    if not all(-n <= at < n for at in pair):
        raise HeadroomError(f"the prompts have {n} tokens; choose positions from 0 to {n - 1} instead of {pair}")
    return torch.tensor(pair)[:, None] % n


def _measured_heads(loaded: Loaded, bos: bool, wanted: Patching) -> Measuring:
    import torch

    yield Progress(0, 1, message="patching heads", share=0.0)
    ids = _token_ids(loaded, bos, wanted)
    with torch.inference_mode():
        rows = hidden_with(loaded, ids[0].tolist(), head_outputs(loaded, ids[1].tolist()))
        of_both = torch.cat([rows[:1], hidden_of(loaded, ids[1:])[:, -1]])
        logits = torch.cat([logits for _, logits in some_logits(loaded, of_both)])
        answers = _answers(loaded, wanted, logits)
        found = torch.cat([each[:, [*answers]] for _, each in some_logits(loaded, rows[1:])])
        packed = _packed(loaded, ids, answers, logits, hidden_changed(loaded, ids[0].tolist(), lambda _, each: each))
    shape = loaded.identity.shape
    moved = (found[:, 1] - found[:, 0]).cpu().numpy() - packed["differences"][0]
    return packed | {"moved": moved.reshape(shape.n_layers, shape.n_heads)}, {"kind": "patching"}


def _packed(
    loaded: Loaded, ids: Tensor, answers: tuple[int, int], logits: Tensor, unmoved: Tensor
) -> dict[str, np.ndarray]:
    """Returns the arrays of a record but `moved`. `logits`: of both prompts; `unmoved` (row, d_model): the
    unembedding's input of A with its own activations patched into it."""
    import torch

    found = torch.cat([of_both[:, [*answers]] for _, of_both in some_logits(loaded, unmoved)])
    differences, same = (each[:, 1] - each[:, 0] for each in (logits[:, [*answers]], found))
    step = torch.finfo(unmoved.dtype).eps * logits[:, [*answers]].abs().max()
    rounding = torch.maximum((same - differences[0]).abs().max(), step)
    arrays = {"token_ids": ids.numpy(), "answers": np.array(answers), "differences": differences.cpu().numpy()}
    shown = np.concatenate([arrays["token_ids"].ravel(), arrays["answers"]])
    return arrays | {"rounding": rounding.cpu().numpy()[None], "strings": pack_strings(shown, loaded.tokenizer)}


def _token_ids(loaded: Loaded, bos: bool, wanted: Patching) -> Tensor:
    """Returns (2, n): the tokens of both prompts."""
    import torch

    texts = [_tokens(loaded, text, bos) for text in (wanted.a, wanted.b)]
    a, b = map(len, texts)
    if a != b:
        raise HeadroomError(f"prompt A has {a} tokens and prompt B {b}; write them equally long")
    if np.array_equal(texts[0], texts[1]):
        raise HeadroomError("prompts A and B have the same tokens; change one of them")
    return torch.from_numpy(np.stack(texts).astype(np.int64))


def _tokens(loaded: Loaded, text: str, bos: bool) -> np.ndarray:
    most = min(MAX_TOKENS, loaded.identity.shape.n_ctx) - len(front(loaded.tokenizer, bos))
    reading = read(text, loaded.tokenizer, bos, most)
    if reading.n_left_out:
        raise HeadroomError(f"prompt {text[:40]!r} has more than {most} tokens; take a shorter one")
    return reading.inputs


def _read_both(loaded: Loaded, ids: Tensor, layers: range, kind: str) -> tuple[dict[int, Tensor], Tensor]:
    """Returns the input of each layer or the output of its module of this kind, (2, n, d_model) for both prompts, and
    their last logits (2, V)."""
    import torch

    outputs: dict[int, Tensor] = {}
    with kept(loaded, {*layers}) as streams, ExitStack() as hooks:
        for layer in layers if kind != "stream" else ():
            module = loaded.family.layer_modules(loaded.model)[layer][kind == "ffn"]
            keep = partial(lambda layer, module, args, output: outputs.update({layer: output}), layer)
            hooks.enter_context(module.register_forward_hook(keep))
        last = hidden_of(loaded, ids)[:, -1]
    logits = torch.cat([logits for _, logits in some_logits(loaded, last)])
    return {layer: each.view(*ids.shape, -1) for layer, each in (outputs or streams).items()}, logits


def _patched(
    loaded: Loaded, ids: Tensor, prompt: PromptRead, kind: str, values: Mapping[int, Tensor], places: Tensor
) -> Tensor:
    """Returns (layer * place, d_model): the unembedding's input at A's last token with the `values` (place, d_model) of
    each layer at each place in turn."""
    import torch

    begin, each = 0 if smears(loaded) else int(places[0]), torch.arange(len(places))
    joining = {layer: prompt.inputs[layer][:, begin:].repeat(len(places), 1, 1) for layer in values}
    with ExitStack() as hooks:
        for layer, of_b in values.items():
            if kind == "stream":
                joining[layer][each, places - begin] = of_b
            else:
                module = loaded.family.layer_modules(loaded.model)[layer][kind == "ffn"]
                hooks.enter_context(_replaced(module, of_b, places - begin, len(ids) - begin))
        return hidden_after(loaded, ids.tolist(), joining, prompt)


def _replaced(module: Any, values: Tensor, places: Tensor, n: int) -> Any:
    """Returns the hook, to be removed, by which the last rows, of `n` tokens, have the output at one of `places` each
    from its row of `values` (place, d_model)."""
    import torch

    def replace(module: Any, args: Any, output: Tensor) -> Tensor:
        found = output.clone()
        found.view(-1, n, values.shape[1])[torch.arange(-len(places), 0), places] = values
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


def _as_map(wanted: Patching, records: dict[str, Record]) -> PatchMap | None:
    if not records:
        return None
    arrays = next(iter(records.values())).arrays
    strings = unpack_strings(arrays["strings"])
    tokens = [[strings[each] for each in ids] for ids in arrays["token_ids"].tolist()]
    answers = [strings[each] for each in arrays["answers"].tolist()]
    before, after = (float(each) for each in arrays["differences"])
    rounding = max(float(record.arrays["rounding"][0]) for record in records.values())
    effects = {layer: share_of(each, after - before, CLEARLY * rounding) for first, record in records.items()
               for layer, each in enumerate(record.arrays["moved"], 0 if first == HEADS else int(first))}  # fmt: skip
    pair = wanted.pair and (wanted.pair[0] % len(tokens[0]), wanted.pair[1] % len(tokens[0]))
    about = (tokens[0], tokens[1]), (answers[0], answers[1]), (before, after), rounding, pair
    return PatchMap(wanted.kind, effects, *about)
