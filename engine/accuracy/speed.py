"""The speed of a model under a mask: tokens per second, and the size of weights, keys and values, full and pruned.

Pruned components are not computed (engine.models.slicing). Tokens per second depend on the machine's current load, so
the load is part of the record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.scoring import next_logits
from engine.architecture.transformers_internals import keys_and_values
from engine.demo import story
from engine.measurement import Measurement, Workload, single
from engine.models.loading import Loaded
from engine.models.masks import Mask
from engine.models.session import Target
from engine.models.slicing import applied, sliced
from engine.pieces import Measuring, Piece
from engine.progress import Progress, may_stop
from engine.questions.encoding import read
from engine.records import Record, canonical_key
from engine.timing.workload import CHARACTERS_A_TOKEN

if TYPE_CHECKING:
    import pandas as pd

N_ROUNDS = 7
SIDES: tuple[str, ...] = ("full", "pruned")
PROMPT_TOKENS, NEW_TOKENS = 256, 32
STEP_TOKENS = 20  # prompt tokens read in the time of generating one: measured 10 to 33, by model and precision


@dataclass(frozen=True)
class Speed:
    """The speed and size of a model under one mask; mappings are by SIDES.

    Pruned components are not computed, down to a single head. Full and pruned alternate, so that other work on the
    machine affects both; each turn reads one prompt and then generates with a cache.

    prompt: tokens per second reading the prompt, one entry per round
    generated: tokens per second generating after it, one entry per round
    weight_bytes: bytes of all weights
    cache_bytes: bytes of keys and values per token
    n_prompt, n_new: tokens of the prompt, tokens generated
    load: the machine's 1-minute load before
    n_cpus: its CPUs
    """

    prompt: Mapping[str, np.ndarray]
    generated: Mapping[str, np.ndarray]
    weight_bytes: Mapping[str, int]
    cache_bytes: Mapping[str, int]
    n_prompt: int
    n_new: int
    load: float
    n_cpus: int

    def rows(self) -> list[dict[str, Any]]:
        """Returns one row per quantity: its unit, the median and range of full and pruned, and pruned divided by
        full."""
        rows: list[dict[str, Any]] = []
        timed = {"Prompt": self.prompt, "Generated": self.generated}
        for name, found in timed.items():
            row: dict[str, Any] = {"quantity": name, "unit": "tokens/s"}
            for way in SIDES:
                row |= dict(zip((way, f"{way}_low", f"{way}_high"),
                                map(float, np.quantile(found[way], [0.5, 0, 1])), strict=True))  # fmt: skip
            rows.append(row)
        sized = {"Weights": ("bytes", self.weight_bytes), "Keys and values": ("bytes/token", self.cache_bytes)}
        for name, (unit, sizes) in sized.items():
            rows.append({"quantity": name, "unit": unit, **{way: float(sizes[way]) for way in SIDES}})
        return [row | {"ratio": row["pruned"] / row["full"] if row["full"] else float("nan")} for row in rows]

    def frame(self) -> pd.DataFrame:
        """Returns the rows as a table."""
        import pandas as pd

        return pd.DataFrame(self.rows())


def speed(target: Target, mask: Mask, again: bool = False) -> Measurement[Speed]:
    """Returns the Speed under a mask; progress counts turns. `again`: measures even if it is stored."""
    about = {"mask": mask.key(), "prompt": PROMPT_TOKENS, "new": NEW_TOKENS, "rounds": N_ROUNDS, "slices": "all"}
    shapes: dict[str, tuple[int | str, ...]] = {"sizes": (6,)}
    shapes |= {f"{what}_{way}": ("rounds",) for what in ("prompt", "generated") for way in SIDES}
    n_turns, tokens = len(SIDES) * (1 + N_ROUNDS), PROMPT_TOKENS + NEW_TOKENS * STEP_TOKENS
    measure = partial(_speeds_measured, bos=target.bos, mask=mask)
    piece = Piece(canonical_key("speed", target.key() | about), 1 + n_turns, shapes, measure, reads=_speed)
    expected = partial(Workload, {"forward": float(n_turns * tokens * CHARACTERS_A_TOKEN)})
    return single(target, piece, _speed, expected, again)


def _speeds_measured(loaded: Loaded, bos: bool, mask: Mask) -> Measuring:
    load, parts = os.getloadavg()[0], sliced(loaded, mask, as_exported=True)
    n_ctx = loaded.identity.shape.n_ctx
    n_prompt = max(1, min(PROMPT_TOKENS, n_ctx - NEW_TOKENS))
    ids = read(story(), loaded.tokenizer, bos, n_prompt).inputs[:n_prompt].tolist()
    n_new = min(NEW_TOKENS, n_ctx - len(ids))
    seconds: dict[str, list[float]] = {f"{what}_{way}": [] for what in ("prompt", "generated") for way in SIDES}
    cache_bytes, done = dict.fromkeys(SIDES, 0), 0
    for number in range(-1, N_ROUNDS):  # the first one warms up
        for way in SIDES:
            with nullcontext() if way == "full" else applied(loaded, parts):
                read_s, written_s, cache_bytes[way] = _turn(loaded, ids, n_new)
            if number >= 0:
                seconds[f"prompt_{way}"].append(len(ids) / read_s)
                seconds[f"generated_{way}"].append(n_new / written_s)
            done += 1
            yield Progress(done, 1 + len(SIDES) * (1 + N_ROUNDS), message="Tokens per second")
    whole = sum(each.numel() * each.element_size() for each in loaded.model.parameters())
    sizes = [whole, whole - parts.n_bytes_full + parts.n_bytes, *(cache_bytes[way] for way in SIDES), len(ids), n_new]
    arrays = {name: np.array(values) for name, values in seconds.items()} | {"sizes": np.array(sizes, np.int64)}
    return arrays, {"kind": "speed", "mask": mask.text(), "load": load, "n_cpus": os.cpu_count() or 1}


def _turn(loaded: Loaded, ids: list[int], n_new: int) -> tuple[float, float, int]:
    """Returns (seconds to read the prompt, seconds to generate n_new tokens, bytes of keys and values per token)."""
    import torch
    from transformers import DynamicCache

    kept = DynamicCache()
    with torch.inference_mode():
        began = time.perf_counter()
        token = int(next_logits(loaded, ids, kept).argmax())
        read_s = time.perf_counter() - began
        began = time.perf_counter()
        for step in range(n_new):
            may_stop()
            token = int(next_logits(loaded, [token], kept, len(ids) + step).argmax())
        written_s = time.perf_counter() - began
    held = [each for pair in keys_and_values(kept).values() for each in pair]
    n_bytes = sum(each.numel() * each.element_size() for each in held)
    return read_s, written_s, round(n_bytes / (len(ids) + n_new))


def _speed(record: Record) -> Speed:
    receipt, sizes = record.receipt, [int(size) for size in record.arrays["sizes"]]
    prompt, generated = ({way: record.arrays[f"{what}_{way}"] for way in SIDES} for what in ("prompt", "generated"))
    weights, cache = ({way: sizes[at + number] for number, way in enumerate(SIDES)} for at in (0, 2))
    return Speed(prompt, generated, weights, cache, sizes[4], sizes[5], receipt["load"], receipt["n_cpus"])
