"""One head on a text and on repeated random tokens, through the store: where it attends, and the tokens that it raises
there by the direct path (engine.heads.direct_paths).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.accuracy.scoring import hidden_of
from engine.heads import probes
from engine.heads.attention import BEGINNING, MAX_TOKENS, AttendedText, Head, largest, whole_rows
from engine.heads.direct_paths import Pass, read_by_all, run
from engine.measurement import Measurement, by_name, single
from engine.models.loading import Loaded
from engine.models.masks import Mask
from engine.models.patterns import visited
from engine.models.session import Target
from engine.models.weights import output_weights, unembedding
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import pack_strings, read_within, unpack_strings
from engine.records import Record, canonical_key, pack_json, unpack_json
from engine.shapes import ModelShape
from engine.texts.passages import checked, text_digest
from engine.timing.workload import CHARACTERS_A_TOKEN

if TYPE_CHECKING:
    from torch import Tensor

N_RAISED = 5  # tokens per position
LEAST = 0.02  # attention from which a weight is kept; less is not visible
N_SOURCES = int(1 / LEAST)  # at most so many per position
PROBE_TOKENS, PROBE_SEED = 25, 0  # the first example of the prefix-matching score
ROWS = 128  # positions whose logits are held at once


@dataclass(frozen=True)
class HeadInText(AttendedText):
    """A head on a text.

    pattern: (T, T), row = destination, 0 where the attention is below LEAST
    to_first: (T,) attention to the first token, exact
    to_previous: (T,) attention to the previous token, exact
    raised_next: (T,) what the head adds to the zero-meaned logit of the next token, in nats; the last is nan
    raised_ids: (T, 5) the tokens that it raises most
    raised_nats: (T, 5) by how much
    strings: the text of each token id in `raised_ids`
    """

    pattern: np.ndarray
    to_first: np.ndarray
    to_previous: np.ndarray
    raised_next: np.ndarray
    raised_ids: np.ndarray
    raised_nats: np.ndarray
    strings: Mapping[int, str]

    @property
    def rests(self) -> float:
        """Mean attention to the first token, 0 to 1, over the others."""
        return float(self.to_first[1:].mean())


@dataclass(frozen=True)
class HeadOnProbe:
    """A head on a beginning token and 25 random tokens (fewer in a short window) repeated four times: `pattern` (T, T),
    and the text of each token."""

    pattern: np.ndarray
    pieces: tuple[str, ...]
    period: int = PROBE_TOKENS


@dataclass(frozen=True)
class Looked:
    """One pair of token indices of a HeadInText, from `destination` to `source`, and its weight `attention`."""

    destination: int
    source: int
    attention: float


def head_in_texts(target: Target, texts: Mapping[str, str], head: Head) -> Measurement[dict[str, HeadInText]]:
    """Returns the head's HeadInText on each text, by name. HeadroomError: a text is empty."""
    texts = {name: checked(text) for name, text in texts.items()}
    shapes: dict[str, tuple[int | str, ...]] = {"token_ids": ("T",), "ends": ("n",), "strings": ("bytes",)}
    shapes |= {"pattern": ("T", "k"), "pattern_at": ("T", "k")}
    shapes |= dict.fromkeys(("to_first", "to_previous", "raised_next"), ("T",))
    shapes |= {"raised_ids": ("T", "r"), "raised_nats": ("T", "r")}
    wanted = {}
    for name, text in texts.items():
        key = canonical_key(
            "head in text",
            target.key_of_patterns() | {"text": text_digest(text), "head": list(head), "least": str(LEAST)},
        )
        measure, value = partial(_in_text, text=text, head=head, bos=target.bos), partial(_as_text, text)
        wanted[name] = Piece(key, 1, shapes, measure, partial(len, text), "patterns", value)
    return by_name(target, wanted, lambda name, record: _as_text(texts[name], record))


def head_on_probe(target: Target, head: Head) -> Measurement[HeadOnProbe]:
    """Returns the HeadOnProbe of `head`. HeadroomError: the window is too short."""
    n_tokens = _probe_tokens(target.shape)
    n = 1 + probes.N_COPIES * n_tokens
    about = {"tokens": n_tokens, "seed": PROBE_SEED, "head": list(head)}
    key = canonical_key("head on probe", target.as_usual.key_of_patterns() | about)
    shapes: dict[str, tuple[int | str, ...]] = {"pattern": (n, n), "strings": ("bytes",)}
    measure = partial(_on_probe, head=head)
    piece = Piece(key, 1, shapes, measure, lambda: CHARACTERS_A_TOKEN * n, "patterns", _as_probe)
    return single(target.as_usual, piece, _as_probe)


def most_looked_at(seen: HeadInText, count: int) -> list[Looked]:
    """Returns the pairs of largest weight whose source is not the first token, each pair of token texts once."""
    pattern, named, listed = seen.pattern.copy(), seen.pieces, []
    pattern[:, 0] = 0
    taken: set[tuple[str, str]] = set()
    for flat in np.argsort(-pattern, axis=None, kind="stable"):
        destination, source = divmod(int(flat), pattern.shape[1])
        if len(listed) == count or not pattern[destination, source]:
            break
        pair = named[destination].strip(), named[source].strip()
        if all(pair) and pair not in taken:
            taken.add(pair)
            listed.append(Looked(destination, source, float(pattern[destination, source])))
    return listed


def most_raised(seen: HeadInText, count: int) -> list[int]:
    """Returns the positions at which a token is raised most, largest first, each such token once."""
    taken: set[str] = set()
    listed: list[int] = []
    for position in np.argsort(-seen.raised_nats[:, 0], kind="stable"):
        what = seen.strings.get(int(seen.raised_ids[position, 0]), "").strip()
        if len(listed) == count or not seen.raised_nats[position, 0] > 0:
            break
        if what and what not in taken:
            taken.add(what)
            listed.append(int(position))
    return listed


def _in_text(loaded: Loaded, text: str, head: Head, bos: bool) -> Measuring:
    import torch

    yield Progress(0, 1, message="texts")
    (layer, number), rows = head, {}
    reading = read_within(text, loaded.tokenizer, bos, min(MAX_TOKENS, loaded.identity.shape.n_ctx))

    def visit(at: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
        if at == layer:
            rows[0] = pattern[0, number].clone()

    with torch.inference_mode():
        ran = run(loaded, reading.inputs, Mask.full(loaded.identity.shape), visit)
        pattern = rows[0]
        written = ran.z[layer][:-1, number] @ output_weights(loaded, layer)[number]
        following = (written * ran.for_attention[layer].to(written.device)).sum(-1)
        ids, nats = _raised(loaded, ran, layer, written)
    n = len(pattern)
    arrays = {"token_ids": reading.inputs, "ends": reading.ends, "strings": pack_strings(ids, loaded.tokenizer)}
    arrays |= largest("pattern", pattern.where(pattern >= LEAST, 0), min(N_SOURCES, len(pattern)))
    arrays["to_first"] = pattern[:, 0].cpu().numpy()
    arrays["to_previous"] = np.r_[0, pattern.diagonal(-1).cpu().numpy()].astype(np.float32)
    arrays["raised_next"] = np.r_[following.float().cpu().numpy(), np.nan].astype(np.float32)
    arrays["raised_ids"] = np.zeros((n, ids.shape[1]), np.int32)
    arrays["raised_nats"] = np.zeros((n, ids.shape[1]), np.float32)
    arrays["raised_ids"][:-1], arrays["raised_nats"][:-1] = ids, nats
    return arrays, {"kind": "head in text", "head": f"L{layer}H{number}"}


def _raised(loaded: Loaded, ran: Pass, layer: int, written: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Returns (ids, nats), both (T - 1, 5): the tokens whose zero-meaned logit is raised most at each position."""
    read = read_by_all(loaded, ran, layer, written)
    readers = unembedding(loaded, final_norm=False, zero_mean=True)  # (n_vocab, d_model)
    count, ids, nats = min(N_RAISED, len(readers)), [], []
    for first in range(0, len(read), ROWS):
        most = (read[first : first + ROWS].to(readers.device) @ readers.T).topk(count, dim=-1)
        ids.append(most.indices.cpu().numpy())
        nats.append(most.values.cpu().numpy())
    return np.concatenate(ids), np.concatenate(nats)


def _as_text(text: str, record: Record) -> HeadInText:
    arrays = dict(record.arrays) | {"pattern": whole_rows(record, "pattern")}
    del arrays["pattern_at"]
    return HeadInText(text, strings=unpack_strings(arrays.pop("strings")), **arrays)


def _probe_tokens(shape: ModelShape) -> int:
    """Returns how many random tokens, repeated four times, fit the window; at most 25."""
    return max(1, min(PROBE_TOKENS, (shape.n_ctx - 1) // probes.N_COPIES))


def _on_probe(loaded: Loaded, head: Head) -> Measuring:
    import torch

    yield Progress(0, 1, message="random tokens")
    (layer, number), rows = head, {}
    n_tokens = _probe_tokens(loaded.identity.shape)
    inputs = probes.repeated_tokens(loaded, n_tokens, probes.N_COPIES, [np.random.default_rng((PROBE_SEED, 0))])

    def visit(at: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
        if at == layer:
            rows[0] = pattern[0, number].half().cpu().numpy()

    with torch.inference_mode(), visited(loaded, visit):
        hidden_of(loaded, inputs)
    strings = [BEGINNING, *loaded.tokenizer.batch_decode([[each] for each in inputs[0, 1:].tolist()])]
    arrays = {"pattern": rows[0], "strings": pack_json(strings)}
    return arrays, {"kind": "head on probe", "head": f"L{layer}H{number}"}


def _as_probe(record: Record) -> HeadOnProbe:
    strings = unpack_json(record.arrays["strings"])
    period = (len(strings) - 1) // probes.N_COPIES
    return HeadOnProbe(record.arrays["pattern"].astype(np.float32), tuple(strings), period)
