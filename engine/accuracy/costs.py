"""The savings by a mask: parameters and bytes of the layers, and measured seconds per question, masked and sliced.

Masked: everything is computed, and the outputs of pruned components are set to 0. Sliced: pruned components are not
computed (engine.models.slicing). Seconds depend on the machine's current load, so the load is part of the record.
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
    """The cost of a model under one mask.

    n_params, n_params_full: parameters of the pruned and the full model's layers
    n_bytes, n_bytes_full: their bytes
    n_heads_masked: heads pruned but computed, because too few of their layer are pruned or it has fused projections
    seconds: by WAYS, seconds per question, one entry per round; {} if not measured
    n_questions: questions timed
    slicing_s: seconds to make the smaller weights
    load: the machine's 1-minute load before
    n_cpus: its CPUs
    """

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
    """Returns the Cost of a mask, with seconds if `timed`. `again`: measures even if it is stored."""
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
                yield Progress(max(0, number), 1 + N_ROUNDS, message="Seconds per question")
    arrays = {way: np.array(values) for way, values in seconds.items()}
    arrays["sizes"] = np.array(
        [parts.n_params, parts.n_params_full, parts.n_bytes, parts.n_bytes_full, parts.masked.n_heads_pruned], np.int64
    )
    about = {"kind": "cost", "mask": mask.text(), "n_questions": len(chunk), "slicing_s": slicing_s, "load": load}
    return arrays, {**questions.receipt(), **about, "n_cpus": os.cpu_count() or 1}


def _chunk(questions: Questions) -> tuple[int, ...]:
    return questions.order[: min(N_QUESTIONS, questions.n)]


def _cost(record: Record) -> Cost:
    receipt = record.receipt
    n_params, n_params_full, n_bytes, n_bytes_full, n_masked = (int(value) for value in record.arrays["sizes"])
    seconds = {way: record.arrays[way] for way in WAYS if way in record.arrays}
    return Cost(n_params, n_params_full, n_bytes, n_bytes_full, n_masked, seconds, receipt["n_questions"],
                receipt["slicing_s"], receipt["load"], receipt["n_cpus"])  # fmt: skip
