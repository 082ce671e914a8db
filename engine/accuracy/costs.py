"""What a mask saves: parameters and bytes that the layers hold, and measured seconds a question, masked and sliced.

Masked: everything is computed and what is pruned is set to 0. Sliced: what is pruned is not computed
(engine.models.slicing). Seconds are of this machine at that moment, so its load is part of the record.
"""

import os
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from engine.accuracy.evaluation import encoded_chunk
from engine.accuracy.scoring import score
from engine.measurement import Measurement, Workload, single
from engine.models.loading import Loaded
from engine.models.masks import Mask, pruned
from engine.models.session import Target
from engine.models.slicing import applied, sliced
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.requests import Questions
from engine.records import Record, canonical_key
from engine.timing.workload import all_characters

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
    target: Target, questions: Questions, mask: Mask, timed: bool = True, again: bool = False
) -> Measurement[Cost]:
    """The Cost of a mask, with seconds if `timed`. `again`: measured even if it is stored."""
    fields = target.key() | {"mask": mask.key()}
    shapes: dict[str, tuple[int | str, ...]] = {"sizes": (5,)}
    if timed:
        fields |= {"questions": questions.digest(_chunk(questions)), "rounds": N_ROUNDS}
        shapes |= {way: ("rounds",) for way in WAYS}
    measure = partial(_measured, target=target, questions=questions, mask=mask, timed=timed)
    piece = Piece(canonical_key("cost", fields), 1 + N_ROUNDS if timed else 1, shapes, measure, reads=_cost)

    def expected() -> Workload:
        n_passes = len(WAYS) * (N_ROUNDS + 1) if timed else 0
        return Workload({"forward": n_passes * all_characters(replace(questions, n=len(_chunk(questions))))})

    return single(target, piece, _cost, expected, again)


def _measured(loaded: Loaded, target: Target, questions: Questions, mask: Mask, timed: bool) -> Measuring:
    load = os.getloadavg()[0]
    began = time.perf_counter()
    parts = sliced(loaded, mask)
    slicing_s = time.perf_counter() - began
    chunk = _chunk(questions)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS} if timed else {}
    if timed:
        encoded = encoded_chunk(loaded, target, questions, chunk)
        contexts = {
            "full": nullcontext,
            "masked": lambda: pruned(loaded, mask),
            "sliced": lambda: applied(loaded, parts),
        }
        for number in range(-1, N_ROUNDS):  # the first one warms up
            for way in np.roll(WAYS, number):
                began = time.perf_counter()
                with contexts[way]():
                    for _ in score(loaded, encoded):
                        pass
                if number >= 0:
                    seconds[way].append((time.perf_counter() - began) / len(encoded))
                yield Progress(max(0, number), 1 + N_ROUNDS, message="Seconds a question")
    arrays = {way: np.array(values) for way, values in seconds.items()}
    arrays["sizes"] = np.array(
        [parts.n_params, parts.n_params_full, parts.n_bytes, parts.n_bytes_full, parts.masked.n_heads_pruned], np.int64
    )
    about = {"kind": "cost", "mask": mask.text(), "n_questions": len(chunk), "slicing_s": slicing_s, "load": load}
    return arrays, {**questions.receipt(), **about, "n_cpus": os.cpu_count() or 1}


def _chunk(questions: Questions) -> tuple[int, ...]:
    return questions.order[: min(N_QUESTIONS, questions.n)]


def _cost(record: Record) -> Cost:
    told = record.receipt
    n_params, n_params_full, n_bytes, n_bytes_full, n_masked = (int(value) for value in record.arrays["sizes"])
    seconds = {way: record.arrays[way] for way in WAYS if way in record.arrays}
    return Cost(n_params, n_params_full, n_bytes, n_bytes_full, n_masked, seconds, told["n_questions"],
                told["slicing_s"], told["load"], told["n_cpus"])  # fmt: skip
