"""Training itself: `begin` makes a run's folder, `train` takes it to its end, from wherever it was stopped.

A step depends on the recipe, the text and the state alone, so a run that was killed and goes on ends in the same
weights, bit for bit, on the same machine with the same number of threads.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import HeadroomError, UsageError
from engine.progress import Progress
from engine.training.batches import rows_of
from engine.training.folders import HELD_OUT, LOG, RECIPE, STATE, TEXT, TOKENIZER, Run, is_run, open_run, write
from engine.training.recipe import Recipe
from engine.training.snapshots import save_snapshot

BETAS, LARGEST_GRADIENT = (0.9, 0.98), 1.0
SAVE_EVERY_S = 20.0  # so much work a kill loses at most


def begin(folder: Path, recipe: Recipe, text: Path | None = None, threads: int = 1) -> Run:
    """Makes the folder of a run, with its text and tokenizer; the run itself where the same was begun there.

    HeadroomError: no text, or too little. UsageError: another run is there.
    """
    if is_run(folder):
        held = open_run(folder)
        if held.recipe != recipe or held.about.get("path") != (str(text) if text else None):
            raise UsageError(f"{folder} holds another run ({held.recipe.in_words}); give another folder, or delete it")
        return held
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty and holds no run; give a new folder")
    from engine.training.text import text_for

    found = text_for(recipe.text_tokens, recipe.n_vocab, text)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / TOKENIZER, found.tokenizer.to_str().encode())
    write(folder / HELD_OUT, _array(found.held_out))
    write(folder / TEXT, _array(found.tokens))
    said = {"recipe": recipe.as_json(), "text": found.source, "path": str(text) if text else None,
            "text_digest": found.digest, "threads": threads}  # fmt: skip
    write(folder / RECIPE, json.dumps(said, indent=1).encode())  # last: with it the run is begun
    return open_run(folder)


def train(run: Run) -> Iterator[Progress[dict[str, Any]]]:
    """Trains to the end, a Progress in tokens at every snapshot, its value the log's line. Between two of them it can
    be closed; it goes on from there when it is called again. HeadroomError: the disk is full, or the text is gone."""
    import torch

    from engine.training.model import SmallModel, parameters_of
    from engine.training.watching import look

    recipe, total = run.recipe, run.recipe.n_steps * run.recipe.step_tokens
    if run.is_done:
        return
    torch.set_num_threads(int(run.about.get("threads") or 1))
    text, held_out = _loaded_text(run), run.held_out()
    model = SmallModel(recipe)
    optimizer = torch.optim.AdamW(parameters_of(model), lr=recipe.rate, betas=BETAS, fused=True)
    step, seconds = _resume(run, model, optimizer)
    _cut_log(run, step)
    kept = set(recipe.snapshot_steps())
    started = saved = time.monotonic()
    while True:
        if step in kept:
            line = {"step": step, "tokens": step * recipe.step_tokens, "rate": _rate(recipe, step)}
            line |= look(model, recipe, held_out).as_json()
            line["seconds"] = round(seconds + time.monotonic() - started, 2)
            _append(run.folder / LOG, line)
            save_snapshot(model, recipe, run.folder / TOKENIZER, run.snapshot(step))
            yield Progress(step * recipe.step_tokens, total, line)
        if step == recipe.n_steps:
            break
        if time.monotonic() - saved > SAVE_EVERY_S:
            _save(run, model, optimizer, step, seconds + time.monotonic() - started)
            saved = time.monotonic()
        loss = model.loss(torch.from_numpy(rows_of(recipe, text, step)))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_GRADIENT)
        for group in optimizer.param_groups:
            group["lr"] = _rate(recipe, step)
        optimizer.step()
        step += 1
    for name in (TEXT, STATE):  # what only a run that goes on needs
        (run.folder / name).unlink(missing_ok=True)


def _rate(recipe: Recipe, step: int) -> float:
    """Up over the first steps, then constant: nothing scheduled coincides with what is to be seen."""
    return recipe.rate * min(1.0, (step + 1) / max(1, recipe.warm_up))


def _array(values: np.ndarray) -> bytes:
    held = io.BytesIO()
    np.save(held, values, allow_pickle=False)
    return held.getvalue()


def _loaded_text(run: Run) -> np.ndarray:
    try:
        return np.load(run.folder / TEXT, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise HeadroomError(f"{run.folder / TEXT}, the text of a run that is not done, is gone or damaged; delete the "
                            f"folder and train again") from error  # fmt: skip


def _resume(run: Run, model: Any, optimizer: Any) -> tuple[int, float]:
    """(step, seconds) of the state that was saved last, which is loaded; (0, 0.0) where there is none."""
    import torch

    if not (run.folder / STATE).is_file():
        return 0, 0.0
    try:
        held = torch.load(run.folder / STATE, weights_only=True)
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
        return int(held["step"]), float(held["seconds"])
    except Exception as error:  # whatever torch thinks of a damaged file
        raise HeadroomError(f"{run.folder / STATE} is damaged; delete it, and the run begins anew") from error


def _save(run: Run, model: Any, optimizer: Any, step: int, seconds: float) -> None:
    import torch

    held = io.BytesIO()
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "seconds": seconds}, held
    )
    write(run.folder / STATE, held.getvalue())


def _cut_log(run: Run, step: int) -> None:
    """Leaves out the lines that a run which goes on from `step` writes again."""
    lines = [line for line in run.log() if line["step"] < step]
    write(run.folder / LOG, "".join(json.dumps(line) + "\n" for line in lines).encode())


def _append(path: Path, line: dict[str, Any]) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise HeadroomError(f"{path} cannot be written ({error.strerror}); make room and start the run again: it goes "
                            f"on where it was") from error  # fmt: skip
