"""Training itself: `begin` makes a run's folder, `train` takes it to its end, from wherever it was stopped.

A step depends on the recipe, the text and the state alone, so a run that was killed and goes on ends in the same
weights, bit for bit, on the same machine with the same number of threads.

Small models in fp32: under autocast to bf16 they train at .54 to .84 of the speed (one thread of an EPYC with
avx512_bf16: 18,000 to 36,000 tokens a second against 32,000 to 42,000).
"""

from __future__ import annotations

import io
import json
import math
import os
import time
import warnings
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.checkpoints.identity import identify_folder
from engine.checkpoints.names import RECIPE, is_run
from engine.errors import HeadroomError, UsageError
from engine.files import is_file
from engine.progress import Progress
from engine.training.folders import HELD_OUT, LOG, STATE, TEXT, TOKENIZER, Run, not_written, open_run, write
from engine.training.locking import LOCK, sole_trainer
from engine.training.recipe import Recipe

if TYPE_CHECKING:
    from engine.training.model import Trainable
    from engine.training.text import TrainingText

LARGEST_GRADIENT = 1.0
SAVE_EVERY_S, TELL_EVERY_S = 10.0, 1.0  # so much work a kill loses at most; how often is said how it goes
OF_A_BEGINNING = {HELD_OUT, LOCK, TEXT, TOKENIZER, *(f"{name}.new" for name in (HELD_OUT, RECIPE, TEXT, TOKENIZER))}


def begin(
    folder: Path, recipe: Recipe, text: Path | None = None, threads: int = 1, kind: Trainable | None = None
) -> Run:
    """Makes the folder of a run, with its text and tokenizer; the run itself where the same was begun there. `kind`:
    the kind of model that the recipe is of (None: a small model).

    HeadroomError: no text, too little of it, or nothing can be written. UsageError: another run is there.
    """
    if is_run(folder):
        held = open_run(folder, recipe)
        if held.recipe != recipe or held.about.get("path") != (str(text) if text else None):
            raise UsageError(f"{folder} holds another run ({held.recipe.in_words}); give another folder, or delete it")
        if not _has_text(held) and (not held.is_done or not held.has_held_out or damaged_steps(held)):
            with sole_trainer(folder):
                _write_text(folder, (kind or _small_models()).text(recipe, text), held.about.get("text_digest"))
        return held
    if folder.is_dir() and (others := {entry.name for entry in folder.iterdir()} - OF_A_BEGINNING):
        raise UsageError(f"{folder} is not empty and holds no run ({min(others)}); give a new folder")
    with sole_trainer(folder):
        found = (kind or _small_models()).text(recipe, text)
        _write_text(folder, found)
        said = {"recipe": recipe.as_json(), "text": found.source, "path": str(text) if text else None,
                "text_digest": found.digest, "threads": threads}  # fmt: skip
        write(folder / RECIPE, json.dumps(said, indent=1).encode())  # last: with it the run is begun
    return open_run(folder, recipe)


def train(run: Run, kind: Trainable | None = None) -> Generator[Progress[dict[str, Any]], None, None]:
    """Trains to the end, a Progress in tokens about once a second and at every snapshot, its value the log's last line.
    It can be closed at any of them; it goes on from there when it is called again. Damaged snapshots are made again.

    HeadroomError: another process trains it, the disk is full, its text is missing, or the loss is not finite.
    """
    if damaged := damaged_steps(run):
        with sole_trainer(run.folder):
            yield from _remade(run, kind or _small_models(), damaged)
    if not run.is_done:
        with sole_trainer(run.folder):
            yield from _steps(run, kind or _small_models())
    for name in (TEXT, STATE):  # what only a run that goes on needs
        (run.folder / name).unlink(missing_ok=True)


def _small_models() -> Trainable:
    from engine.training.model import SMALL_MODELS

    return SMALL_MODELS


def damaged_steps(run: Run) -> tuple[int, ...]:
    """The steps whose snapshots are there and cannot be opened."""
    found = []
    for step in run.recipe.snapshot_steps():
        if (folder := run.snapshot(step)).is_dir():
            try:
                identify_folder(folder.name, folder, None)
            except HeadroomError:
                found.append(step)
    return tuple(found)


def _remade(run: Run, kind: Trainable, damaged: tuple[int, ...]) -> Iterator[Progress[dict[str, Any]]]:
    """Trains from the beginning to the last of these steps and writes their snapshots alone."""
    recipe, rows, reported_s = run.recipe, kind.rows(run, _loaded_text(run)), time.monotonic()
    model, optimizers = _beginning(run, kind)
    for step in range(damaged[-1] + 1):
        if step in damaged:
            kind.save(model, recipe, run.folder / TOKENIZER, run.snapshot(step))
        if step in damaged or time.monotonic() - reported_s > TELL_EVERY_S:
            done, total = step * recipe.step_tokens, recipe.n_steps * recipe.step_tokens
            yield Progress(done, total, {}, f"making damaged snapshots again ({len(damaged)})")
            reported_s = time.monotonic()
        if step < damaged[-1]:
            _advance(model, optimizers, rows(step), recipe.rates(step))


def _beginning(run: Run, kind: Trainable) -> tuple[Any, list[Any]]:
    """(model, optimizers) before the first step."""
    import torch

    torch.set_num_threads(int(run.about.get("threads") or 1))
    return kind.start(run.recipe)


def _advance(model: Any, optimizers: list[Any], rows: Any, rates: tuple[float, ...]) -> None:
    """One step of training."""
    import torch

    loss = model.loss(rows)
    model.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_GRADIENT)
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate
    for optimizer in optimizers:
        optimizer.step()


def _steps(run: Run, kind: Trainable) -> Iterator[Progress[dict[str, Any]]]:
    recipe, total = run.recipe, run.recipe.n_steps * run.recipe.step_tokens
    rows, held_out = kind.rows(run, _loaded_text(run)), _held_out(run)
    model, optimizers, step, seconds = _resumed(run, kind)
    if step == 0 and (run.folder / STATE).is_file():
        yield Progress(0, total, {}, f"{STATE} is damaged: training begins again")
    line = _cut_log(run, step)
    kept = set(recipe.snapshot_steps())
    started = saved = reported_s = time.monotonic()
    try:
        while True:
            if step in kept:
                line = {"step": step, "tokens": step * recipe.step_tokens, "rate": recipe.rates(step)[0]}
                line |= kind.measure(model, recipe, held_out)
                line["seconds"] = round(seconds + time.monotonic() - started, 2)
                if not math.isfinite(line["loss"]):
                    raise HeadroomError(f"the loss is not finite at step {step} of {run.folder}; its snapshots "
                                        f"are kept, train another with a rate below {recipe.rate:g}")  # fmt: skip
                _append(run.folder / LOG, line)
                kind.save(model, recipe, run.folder / TOKENIZER, run.snapshot(step))
            if step == recipe.n_steps:
                yield Progress(total, total, line, _in_words(line))
                break
            if step in kept or time.monotonic() - reported_s > TELL_EVERY_S:
                yield Progress(step * recipe.step_tokens, total, line, _in_words(line))
                reported_s = time.monotonic()
            if time.monotonic() - saved > SAVE_EVERY_S:
                _save(run, model, optimizers, step, seconds + time.monotonic() - started)
                saved = time.monotonic()
            _advance(model, optimizers, rows(step), recipe.rates(step))
            step += 1
    except GeneratorExit:  # closed between two steps, so that the state is whole
        if step < recipe.n_steps:
            _save(run, model, optimizers, step, seconds + time.monotonic() - started)
        raise


def best(line: Mapping[str, Any], score: str = "prefix_matching") -> float:
    """The largest of a score over all heads, of a line of the log."""
    return float(np.max(line[score]))


def _in_words(line: Mapping[str, Any]) -> str:
    if not line:
        return ""
    return f"loss of repeated tokens {line['second_copy']:.2f}, best prefix matching {best(line):.2f}"


def _write_text(folder: Path, found: TrainingText, digest: str | None = None) -> None:
    """Writes what a run reads. HeadroomError: it is not what it was, by its `digest`."""
    if digest not in (None, found.digest):
        raise HeadroomError(f"the text that {folder} had read is gone, and there is another now; its snapshots are "
                            f"kept, train a new run in another folder")  # fmt: skip
    write(folder / TOKENIZER, found.tokenizer.to_str().encode())
    write(folder / HELD_OUT, _array(found.held_out))
    write(folder / TEXT, _array(found.tokens))


def _has_text(run: Run) -> bool:
    """Whether all that a run reads can be read."""
    try:
        _loaded_text(run)
        _held_out(run)
    except HeadroomError:
        return False
    return (run.folder / TOKENIZER).is_file()


def _held_out(run: Run) -> np.ndarray:
    found = run.held_out()
    if found.max() >= run.recipe.n_vocab or found.shape[1] < run.recipe.n_ctx:
        raise HeadroomError(f"{run.folder / HELD_OUT} is of another run; the command that began the run makes it again")
    return found


def _array(values: np.ndarray) -> bytes:
    held = io.BytesIO()
    np.save(held, values, allow_pickle=False)
    return held.getvalue()


def _loaded_text(run: Run) -> np.ndarray:
    try:
        if not is_file(run.folder / TEXT):
            raise ValueError("not a regular file")
        found = np.load(run.folder / TEXT, mmap_mode="r", allow_pickle=False)
        if len(found) < run.recipe.text_tokens or found.ndim != 1 or found.dtype.kind not in "iu":
            raise ValueError("cut short, or no token ids")
        if found.size and not 0 <= found.min() <= found.max() < run.recipe.n_vocab:
            raise ValueError("tokens that the vocabulary does not have")
    except Exception as error:  # whatever numpy thinks of a damaged file
        raise HeadroomError(f"{run.folder / TEXT}, the text of a run that is not done, is gone or damaged; the command "
                            f"that began the run makes it again") from error  # fmt: skip
    return found


def _resumed(run: Run, kind: Trainable) -> tuple[Any, list[Any], int, float]:
    """(model, optimizers, step, seconds) of the state that was saved last; of the beginning if there is none, or it is
    damaged."""
    import torch

    model, optimizers = _beginning(run, kind)
    if not (run.folder / STATE).is_file():
        return model, optimizers, 0, 0.0
    try:
        with warnings.catch_warnings(action="ignore"):  # of another file than torch.save writes
            held = torch.load(run.folder / STATE, weights_only=True)
        model.load_state_dict(held["model"])
        for optimizer, state in zip(optimizers, [held["optimizer"], *held.get("others", ())], strict=True):
            optimizer.load_state_dict(state)
        step, seconds = int(held["step"]), float(held["seconds"])
        if not 0 <= step <= run.recipe.n_steps:
            raise ValueError("no step of this run")
    except Exception:  # whatever torch thinks of a damaged file
        return *_beginning(run, kind), 0, 0.0
    return model, optimizers, step, seconds


def _save(run: Run, model: Any, optimizers: list[Any], step: int, seconds: float) -> None:
    import torch

    first, *others = (optimizer.state_dict() for optimizer in optimizers)
    state = {"model": model.state_dict(), "optimizer": first, "step": step, "seconds": seconds}
    held = io.BytesIO()
    torch.save(state | ({"others": others} if others else {}), held)
    write(run.folder / STATE, held.getvalue())


def _cut_log(run: Run, step: int) -> dict[str, Any]:
    """Leaves out the lines that a run which goes on from `step` writes again; gives the last that stays."""
    lines = [line for line in run.log() if line["step"] < step]
    write(run.folder / LOG, "".join(json.dumps(line) + "\n" for line in lines).encode())
    return lines[-1] if lines else {}


def _append(path: Path, line: dict[str, Any]) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise not_written(path, error) from error
