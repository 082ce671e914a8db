"""Every head over a corpus, through the store: one pass over its windows, a few at a time.

Each window's largest activation is stored for every head (8 bytes), so deciles are exact, and no sample is drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from engine.composed import then
from engine.corpus.statistics import DISTANCES, SUMS, measure_windows, n_repeated, output_norms
from engine.corpus.windows import Corpus, Windows, in_passes, n_characters, windows_of
from engine.measurement import Measurement, Workload, of_records
from engine.models.loading import Loaded
from engine.models.session import Session, Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.records import Record, canonical_key
from engine.timing.workload import CHARACTERS_A_TOKEN

if TYPE_CHECKING:
    from torch import Tensor

N_DECILES = 10
N_FREQUENT = 6  # tokens that are shown of the largest activations
PASS_FLOATS, PASS_WINDOWS = 2_500_000, 8  # of a layer's patterns, and windows, in one pass at most
KINDS = (
    "induction",
    "same_token",
    "first_token",
    "previous_token",
    "current_token",
)  # of an activation, the first that holds
OTHER = "other"
Head = tuple[int, int]


@dataclass(frozen=True)
class Fired:
    """A head's largest activation in a window: from position `query` to position `key`; `kind`: one of KINDS, or
    OTHER."""

    window: int
    activation: float
    query: int
    key: int
    kind: str


@dataclass(frozen=True)
class HeadsInCorpus:
    """Every head over the first n windows of a corpus.

    windows: all windows
    scores: (L, H) by name, means over queries: attention to what followed earlier copies of the token (`induction`), to
    these copies (`same_token`), to the previous and the first token and to the token itself (`current_token`), 0 to 1;
    `entropy` of the attention in nats; mean `distance` in tokens; `strong`, the share of positions at which the head
    writes strongly
    distances: (L, H, range) the share of attention to each range of DISTANCES
    activation, query, key: (n, L, H) the largest activation in each window
    """

    windows: Windows
    scores: Mapping[str, np.ndarray]
    distances: np.ndarray
    activation: np.ndarray
    query: np.ndarray
    key: np.ndarray

    def __len__(self) -> int:
        return len(self.activation)

    def fired(self, head: Head) -> list[Fired]:
        """The largest activation of a head in each window, the largest first."""
        activations, queries, keys = (each[:, *head] for each in (self.activation, self.query, self.key))
        kinds = self.kinds(head)
        return [Fired(at, float(activations[at]), int(queries[at]), int(keys[at]), kinds[at])
                for at in np.argsort(-activations, kind="stable").tolist()]  # fmt: skip

    def kinds(self, head: Head) -> list[str]:
        """The kind of a head's largest activation in each window."""
        rows, query, key = np.arange(len(self)), self.query[:, *head], self.key[:, *head]
        ids = self.windows.token_ids[: len(self)]
        token, before = ids[rows, query], np.maximum(key - 1, 0)
        holds = {
            "induction": (key > 0) & (ids[rows, before] == token),
            "same_token": (key < query) & (ids[rows, key] == token),
            "previous_token": key == query - 1,
            "first_token": key == 0,
            "current_token": key == query,
        }
        found = np.full(len(self), OTHER, object)
        for kind in reversed(KINDS):
            found[holds[kind]] = kind
        return found.tolist()

    def frequent(self, head: Head, at: str) -> list[tuple[str, float]]:
        """The N_FREQUENT most frequent tokens at the "query" or the "key" of a head's largest activations, with their
        shares of the windows."""
        places = getattr(self, at)[:, *head]
        ids = self.windows.token_ids[np.arange(len(self)), places].tolist()
        most = Counter(ids).most_common(N_FREQUENT)
        return [(self.windows.strings[token], n / len(self)) for token, n in most]


def deciles(fired: Sequence[Fired]) -> list[list[Fired]]:
    """Returns windows in ten groups of equally many, as far as possible, those of the largest activations first."""
    return [list(map(fired.__getitem__, each)) for each in np.array_split(np.arange(len(fired)), N_DECILES)]


def heads_in_corpus(target: Target, corpus: Corpus) -> Measurement[HeadsInCorpus]:
    """Returns the HeadsInCorpus of the windows measured so far. HeadroomError: as for `windows_of`."""
    expected = partial(Workload, {"patterns": n_characters(corpus)})
    about = ("heads in corpus", corpus.digest, corpus.n_windows, corpus.length)
    return then(windows_of(target, corpus), partial(_over, target), expected, about, (1, 99))


def _over(target: Target, windows: Windows) -> Measurement[HeadsInCorpus]:
    shape, (_, n_tokens) = target.shape, windows.token_ids.shape
    heads = (shape.n_layers, shape.n_heads)
    each = max(1, min(PASS_WINDOWS, PASS_FLOATS // (shape.n_heads * n_tokens**2)))
    norms = lru_cache(maxsize=1)(output_norms)
    shapes: dict[str, tuple[int | str, ...]] = dict.fromkeys(SUMS, heads)
    shapes |= {"distances": (*heads, len(DISTANCES))}
    pieces = []
    for ids, named in in_passes(windows.token_ids, each):
        key = canonical_key("heads in corpus", target.key() | named)
        own = shapes | dict.fromkeys(("activation", "query", "key"), (len(ids), *heads))
        measure = partial(_measured, token_ids=ids, norms=norms)
        characters = partial(float, CHARACTERS_A_TOKEN * ids.size)
        pieces.append(Piece(key, len(ids), own, measure, characters, "patterns"))

    def given(session: Session, records: list[Record]) -> list[Piece]:
        return pieces

    return of_records(target, tuple(piece.key for piece in pieces), given, partial(_joined, windows))


def _measured(loaded: Loaded, token_ids: np.ndarray, norms: Callable[[Loaded], list[Tensor]]) -> Measuring:
    import torch

    yield Progress(0, 1, message="windows")
    with torch.inference_mode():
        arrays = measure_windows(loaded, token_ids, norms(loaded))
    return arrays, {"kind": "heads in corpus", "windows": len(token_ids)}


def _joined(windows: Windows, records: list[Record]) -> HeadsInCorpus | None:
    if not records:
        return None
    found = {name: np.concatenate([record.arrays[name] for record in records])
             for name in ("activation", "query", "key")}  # fmt: skip
    sums = {name: np.sum([record.arrays[name] for record in records], axis=0, dtype=float)
            for name in (*SUMS, "distances")}  # fmt: skip
    ids = windows.token_ids[: len(found["key"])]
    n, n_copied = ids[:, 1:].size, n_repeated(ids)
    scores = {name: sums[name] / (max(1, n_copied) if name in ("induction", "same_token") else n) for name in SUMS}
    scores["current_token"] = sums["distances"][..., 0] / n
    return HeadsInCorpus(windows, scores, sums["distances"] / n, **found)
