"""Which snapshots belong together, a `Series`: a run in a folder, or published revisions. What they look like, a
`Trajectory`, and how it is a file. All without torch, and without asking the hub.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from cache.typed_json import InvalidFile, Plain, convert, decode_json
from engine.checkpoints.names import models_of, run_of
from engine.errors import HeadroomError, UsageError
from engine.pieces import is_sound
from engine.records import Record, pack_json
from engine.records import decode as decode_record
from engine.records import encode as encode_record
from engine.training.folders import Foreign, Run, opened
from engine.training.recipe import Recipe

VERSION = 1  # of what a file of a trajectory holds
NUMBERS = ("steps", "tokens", "loss", "icl", "first_copy", "second_copy", "by_index", "token_losses", "ablated",
           "ablated_icl", "ablated_losses")  # fmt: skip


SHAPES: Mapping[str, tuple[int | str, ...]] = {
    **dict.fromkeys(("steps", "tokens", "loss", "icl", "first_copy", "second_copy"), ("S",)), "by_index": ("S", "T"),
    "token_losses": ("S", "n"), "pieces": ("bytes",), "ablated": ("A",), "ablated_icl": ("A", "l", "h"),
    "ablated_losses": ("A", "l", "h", "m"),
}  # fmt: skip
STEP = re.compile(r"step(\d{1,12})")
OF_A_STEP = {"EleutherAI/pythia-": 2_097_152}  # tokens, of what a name begins with


@dataclass(frozen=True)
class PassageTrajectory:
    """A text at every snapshot: `pieces`, the text of each of its n tokens, and `losses` (S, n), nats a token."""

    pieces: tuple[str, ...]
    losses: np.ndarray


@dataclass(frozen=True)
class Trajectory:
    """A run's S snapshots as they were measured: L layers, H heads; nan, or a length of 0, where nothing was.

    `recipe` is what `Recipe.as_json` gives (None: a published series). `about` says what it was measured on: `text`,
    `text_digest` (runs that agree in it have the same held-out tokens), `n_texts`, the indices `early` and `late` with
    the tokens `around` them, `n_ablated_texts`, `seconds`, `versions`.

    Of a snapshot: `steps` and `tokens` (S,) trained on before it; `loss` (S,) nats a held-out token; `icl` (S,) nats,
    the loss at the late index minus that at the early one; `first_copy` and `second_copy` (S,) nats a token of random
    tokens twice over; `by_index` (S, n_ctx) mean loss by token index, from 1; `token_losses` (S, n_texts) loss of one
    token of each held-out text, always the same; `heads` score name -> (S, L, H), `engine.heads.induction.SCORES`.

    At A of them, `ablated` (A,) indices into `steps`: what each head's pattern-preserving ablation adds to the
    in-context score, `ablated_icl` (A, L, H), and to the losses of the same tokens in the first of the texts,
    `ablated_losses` (A, L, H, n_ablated_texts).
    """

    name: str
    label: str
    recipe: Mapping[str, Any] | None
    about: Mapping[str, Any]
    steps: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    icl: np.ndarray
    first_copy: np.ndarray
    second_copy: np.ndarray
    by_index: np.ndarray
    token_losses: np.ndarray
    heads: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))
    passages: Mapping[str, PassageTrajectory] = field(default_factory=lambda: MappingProxyType({}))
    ablated: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    ablated_icl: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0), np.float32))
    ablated_losses: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0, 0), np.float32))

    def best(self, score: str) -> np.ndarray:
        """(S,) the highest of all heads' scores of that name; nan where none was measured."""
        scores = self.heads.get(score)
        if scores is None or not scores[0].size:
            return np.full(len(self.steps), np.nan, np.float32)
        flat = scores.reshape(len(scores), -1)
        return np.where(np.isnan(flat).all(1), np.nan, np.max(np.nan_to_num(flat, nan=-np.inf), 1)).astype(np.float32)


def of_log(name: str, recipe: Recipe, log: Sequence[Mapping[str, Any]]) -> Trajectory:
    """The log of a run as its trajectory: copies, and two scores of its heads; of text nothing if it reads none."""

    def column(name: str) -> np.ndarray:
        return np.array([line[name] for line in log], np.float32)

    unread = np.full(len(log), np.nan, np.float32)
    loss, icl = (column("loss"), column("icl")) if recipe.text_tokens else (unread, unread)
    heads = {name: column(name) for name in ("prefix_matching", "previous_token")}
    steps, nothing = np.array([line["step"] for line in log], np.int64), np.zeros((len(log), 0), np.float32)
    return Trajectory(
        name, recipe.in_words, recipe.as_json(), {}, steps=steps, tokens=steps * recipe.step_tokens, loss=loss, icl=icl,
        first_copy=column("first_copy"), second_copy=column("second_copy"), by_index=nothing, token_losses=nothing,
        heads=heads,
    )  # fmt: skip


def encode(trajectory: Trajectory) -> bytes:
    """The trajectory as one safetensors file."""
    arrays = {name: np.asarray(getattr(trajectory, name)) for name in NUMBERS}
    arrays |= {f"heads/{name}": scores for name, scores in trajectory.heads.items()}
    arrays |= {f"passages/{name}": passage.losses for name, passage in trajectory.passages.items()}
    words = {name: passage.pieces for name, passage in trajectory.passages.items()}
    arrays["pieces"] = pack_json(words)
    said = {"kind": "trajectory", "version": VERSION, "name": trajectory.name, "label": trajectory.label}
    said |= {"recipe": trajectory.recipe and dict(trajectory.recipe), "about": dict(trajectory.about)}
    return encode_record(Record(arrays, said))


def decode(blob: bytes) -> Trajectory:
    """The Trajectory that `encode` wrote. HeadroomError: these are other bytes, or of another version."""
    record = decode_record(blob)
    if record is None or record.receipt.get("kind") != "trajectory":
        raise HeadroomError("this is not a trajectory file; write one with `headroom trajectory RUN --record FILE`")
    arrays = record.arrays
    try:
        said = convert(record.receipt, _Said, "receipt")
        if said.version != VERSION:
            raise HeadroomError(f"the trajectory {said.name} was written by another version of Headroom (file version "
                                f"{said.version}, here {VERSION}); write it again from its run")  # fmt: skip
        if not is_sound(record, SHAPES):
            raise InvalidFile("its arrays are not of one run")
        words = decode_json(arrays["pieces"].tobytes(), dict[str, tuple[str, ...]], "pieces")
        heads = {name.removeprefix("heads/"): array for name, array in arrays.items() if name.startswith("heads/")}
        shapes: dict[str, tuple[int | str, ...]] = {f"heads/{name}": ("S", "L", "H") for name in heads}
        shapes |= {f"passages/{name}": ("S", len(pieces)) for name, pieces in words.items()}
        if not heads or not is_sound(record, {**SHAPES, **shapes}):
            raise InvalidFile("its scores of heads or its passages are not of its snapshots")
    except InvalidFile as error:
        raise HeadroomError(f"this file of a trajectory is damaged ({error}); write it again from its run") from error
    passages = {name: PassageTrajectory(words[name], arrays[f"passages/{name}"]) for name in words}
    numbers = {name: arrays[name] for name in NUMBERS}
    return Trajectory(said.name, said.label, said.recipe, said.about, **numbers, heads=heads, passages=passages)


@dataclass(frozen=True)
class _Said:
    """What the receipt of a file says."""

    version: int
    name: str
    label: str
    recipe: dict[str, Plain] | None
    about: dict[str, Any]


@dataclass(frozen=True)
class Series:
    """Snapshots in the order of training: `models` as they are typed, `steps` and `tokens` trained on before each.
    `run`: the run they are of (None: a published series)."""

    name: str
    label: str
    models: tuple[str, ...]
    steps: tuple[int, ...]
    tokens: tuple[int, ...]
    run: Run | Foreign | None = None


def series_of(text: str, step_tokens: int | None = None) -> Series:
    """The Series that `text` names: a run as its folder or `runs/NAME`, `RUN@step{0,512}`, or `org/model@step{0,512}`.

    `step_tokens`: tokens of a step of a published series, known for Pythia. HeadroomError or UsageError: there is none,
    a step that is not there, a run of another version.
    """
    text = text.strip()
    before, at, revision = (text, "", "") if run_of(text) else text.rpartition("@")
    if (found := run_of(before)) is not None:
        run = opened(found[1])
        there = run.steps()
        steps = tuple(sorted({_step(name) for name in models_of(f"run@{revision}")})) if at else there
        if not steps:
            raise HeadroomError(f"{before} has no snapshots yet; train it first: `headroom train --out {before}`")
        for step in steps:
            if step not in there:
                raise HeadroomError(f"{before} has no snapshot of step {step}; there are those of "
                                    f"{', '.join(map(str, there))}")  # fmt: skip
        models = tuple(str(run.snapshot(step)) for step in steps)
        return Series(run.name, run.label, models, steps, tuple(map(run.tokens, steps)), run)
    if _is_folder(before or text):
        raise HeadroomError(f"{before or text} is a folder, but of no run (it has no recipe.json); give the folder of "
                            f"a run")  # fmt: skip
    names = models_of(text)
    if not at or before == "demo":
        raise HeadroomError(f"{text[:80]!r} is neither the folder of a run nor a series of snapshots; give a run, or a "
                            f"series such as EleutherAI/pythia-70m@step{{0,512,1000}}")  # fmt: skip
    by_step = sorted((_step(name), name) for name in names)
    each = step_tokens or next((n for begins, n in OF_A_STEP.items() if before.startswith(begins)), None)
    if each is None:
        raise UsageError(f"how many tokens a step of {before} has is not known here; give --step-tokens")
    steps = tuple(step for step, _ in by_step)
    return Series(text, before, tuple(name for _, name in by_step), steps, tuple(step * each for step in steps))


def _is_folder(text: str) -> bool:
    try:
        return Path(text).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):
        return False


def _step(name: str) -> int:
    """The number in a name that ends in `@stepN`."""
    found = STEP.fullmatch(name.rpartition("@")[2])
    if found is None:
        raise UsageError(f"{name[:80]!r} is not a snapshot of a series; each must end in @step and a number, such as "
                         f"@step{{0,512,1000}}")  # fmt: skip
    return int(found[1])
