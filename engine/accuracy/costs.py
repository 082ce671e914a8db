"""What a mask saves: parameters and bytes that the layers hold, and measured seconds a question, masked and sliced.

Masked: everything is computed and what is pruned is set to 0. Sliced: what is pruned is not computed
(engine.models.slicing). Seconds are of this machine at that moment, so its load is part of the record.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.accuracy.evaluation import encoded_chunk, loaded_model, make_receipt, numbers_key, texts_digest
from engine.accuracy.scoring import score
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import LoadSpec, Models
from engine.models.masks import Mask, pruned
from engine.models.slicing import applied, sliced
from engine.questions.requests import Requests, Selection
from engine.records import Record, canonical_key, decode, encode

WAYS = ("full", "masked", "sliced")
N_QUESTIONS = 8
N_ROUNDS = 7


@dataclass(frozen=True)
class Cost:
    """Of one mask. `n_heads_masked` heads are pruned but computed: too few of their layer go, or its projections are
    one. `seconds` a question, an array of one entry a round by WAYS, {} before it is measured; `slicing_s` is what
    making the smaller weights took; `load` the machine's 1-minute load before, on `n_cpus`."""

    n_params: int
    n_params_full: int
    n_bytes: int
    n_bytes_full: int
    n_heads_masked: int
    seconds: Mapping[str, np.ndarray] = field(default_factory=dict)
    n_questions: int = 0
    slicing_s: float = 0.0
    load: float = 0.0
    n_cpus: int = 0


def cost(
    models: Models, spec: LoadSpec, requests: Requests, selection: Selection, mask: Mask, bos: bool | None, store: Any,
    timed: bool = True,
) -> Iterator[Progress]:  # fmt: skip
    """Yields Progress; the last one's value is the Cost, which is stored. Not `timed`: sizes alone."""
    total = 1 + N_ROUNDS if timed else 1
    loaded = yield from loaded_model(models, spec, 0, total)
    load = os.getloadavg()[0]
    began = time.perf_counter()
    parts = sliced(loaded, mask)
    slicing_s = time.perf_counter() - began
    chunk = _chunk(selection)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS} if timed else {}
    if timed:
        questions = encoded_chunk(loaded, requests, chunk, bos)
        contexts = {
            "full": nullcontext,
            "masked": lambda: pruned(loaded, mask),
            "sliced": lambda: applied(loaded, parts),
        }
        for number in range(-1, N_ROUNDS):  # the first one warms up
            for way in np.roll(WAYS, number):
                began = time.perf_counter()
                with contexts[way]():
                    for _ in score(loaded, questions):
                        pass
                if number >= 0:
                    seconds[way].append((time.perf_counter() - began) / len(questions))
                yield Progress(max(0, number), total, message="Seconds a question")
    arrays = {way: np.array(values) for way, values in seconds.items()}
    arrays["sizes"] = np.array(
        [parts.n_params, parts.n_params_full, parts.n_bytes, parts.n_bytes_full, parts.masked.n_heads_pruned], np.int64
    )
    total_s = len(chunk) * sum(sum(values) for values in seconds.values())
    receipt = make_receipt(loaded.identity, spec, requests, bos, total_s) | {
        "kind": "cost", "mask": mask.text(), "n_questions": len(chunk), "slicing_s": slicing_s, "load": load,
        "n_cpus": os.cpu_count() or 1,
    }  # fmt: skip
    record = Record(arrays, receipt)
    store.put(_key(loaded.identity, spec, requests, selection, mask, bos, timed), encode(record))
    yield Progress(total, total, _cost(record))


def recall_cost(
    identity: Identity, spec: LoadSpec, requests: Requests, selection: Selection, mask: Mask, bos: bool | None,
    store: Any,
) -> Cost | None:  # fmt: skip
    """What is stored, with times where there are any; loads and measures nothing."""
    for timed in (True, False):
        key = _key(identity, spec, requests, selection, mask, bos, timed)
        record = decode(store.get(key))
        names = ("sizes", *(WAYS if timed else ()))
        if record is not None and all(name in record.arrays for name in names) and record.arrays["sizes"].shape == (5,):
            return _cost(record)
    return None


def _chunk(selection: Selection) -> tuple[int, ...]:
    return selection.order[: min(N_QUESTIONS, selection.n)]


def _key(
    identity: Identity, spec: LoadSpec, requests: Requests, selection: Selection, mask: Mask, bos: bool | None,
    timed: bool,
) -> str:  # fmt: skip
    fields = numbers_key(identity, spec, bos) | {"mask": mask.key()}
    if timed:
        fields |= {"questions": texts_digest(requests, _chunk(selection)), "rounds": N_ROUNDS}
    return canonical_key("cost", fields)


def _cost(record: Record) -> Cost:
    told = record.receipt
    n_params, n_params_full, n_bytes, n_bytes_full, n_masked = (int(value) for value in record.arrays["sizes"])
    seconds = {way: record.arrays[way] for way in WAYS if way in record.arrays}
    return Cost(n_params, n_params_full, n_bytes, n_bytes_full, n_masked, seconds, told["n_questions"],
                told["slicing_s"], told["load"], told["n_cpus"])  # fmt: skip
