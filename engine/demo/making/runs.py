"""Trains and measures the runs that come with the app: `python -m engine.demo.making.runs --work DIR [NAME ...]`.

Each name is a recipe of `engine.training.recipes`: the same as `headroom train --recipe NAME --out DIR/NAME` and then
`headroom trajectory`. What a stopped call has done is found again. Of two runs three snapshots come with the app too.

With `--embedded RUN` it is the embedded model's own run, in the folder RUN: a small OPT on prose and Python, repeated
tokens and episodes of the question families. `--corpus DIR` trains it first, from wherever it was stopped; without, it
is measured as far as it is. That on fewer texts: 8 layers of 6 heads take longer.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cache import Store
from engine.checkpoints.names import RECIPE
from engine.demo import RUN as EMBEDDED_RUN
from engine.demo import runs_folder
from engine.demo.making.corpus import BEGINNING, training_text
from engine.demo.making.network import save, start
from engine.demo.making.recipe import DemoRecipe, rows_by_step
from engine.models.session import Session
from engine.progress import Progress
from engine.training.folders import Run
from engine.training.measuring import TrajectoryPlan, target_at, trajectory
from engine.training.model import Trainable
from engine.training.recipes import RECIPES
from engine.training.running import begin, train
from engine.training.series import series_of
from engine.training.trajectory import Trajectory, encode
from engine.training.watching import look

NAMES = ("plain", "smeared", "smeared-seed-1", "plain-2-layers", "smeared-2-layers", "curriculum", "curriculum-1-layer",
         "curriculum-3-layers", "curriculum-mlp", "curriculum-seed-1", "curriculum-batch-4")  # fmt: skip
WITH_WEIGHTS = {"curriculum": (0.3, 0.4, 1.0), "smeared": (0.25, 0.5, 1.0)}  # shares of the tokens
PLAN = TrajectoryPlan(n_texts=500, n_ablated_texts=60, around=5)
EMBEDDED = Trainable(training_text, start, rows_by_step, partial(look, beginning=BEGINNING), save)
PLAN_OF_EMBEDDED = TrajectoryPlan(n_texts=96, n_ablated_texts=12, around=5)
LONG, DENSE = 6000, (0.2, 0.46)  # snapshots; share of the tokens in which every one is measured, elsewhere every other


def steps_measured(run: Run) -> tuple[int, ...]:
    """Of the snapshots of a run those that its record holds: more than 40."""
    steps = run.steps()
    if run.recipe.n_steps > LONG:
        last = steps[-1]
        return tuple(step for at, step in enumerate(steps) if step in (0, last)
                     or DENSE[0] <= step / last <= DENSE[1] or at % 2 == (len(steps) - 1) % 2)  # fmt: skip
    return tuple(step for at, step in enumerate(steps) if at == 0 or (at - 1) % 5 != 2 or step == steps[-1])


def small(found: Trajectory, name: str) -> Trajectory:
    """The record as it is shipped: large arrays in 16 bits, and a name without local folders."""
    half = {each: getattr(found, each).astype(np.float16) for each in ("by_index", "token_losses", "ablated_losses")}
    return replace(found, name=name, **half)


def ship(found: Trajectory, name: str) -> None:
    """Writes the record among the app's own files."""
    runs_folder().mkdir(exist_ok=True)
    (runs_folder() / f"{name}.safetensors").write_bytes(encode(small(found, name)))


def ship_weights(run: Run, found: Trajectory, name: str) -> None:
    """Writes the snapshots that come with a record."""
    folder = runs_folder()
    if name in WITH_WEIGHTS:
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
        shutil.copyfile(run.folder / RECIPE, folder / name / RECIPE)
        for share in WITH_WEIGHTS[name]:
            step = min(found.steps, key=lambda step: abs(step / run.recipe.n_steps - share))
            shutil.copytree(run.snapshot(int(step)), folder / name / f"step{step}")


def _last(steps: Iterator[Progress[Any]], words: str) -> Any:
    value = None
    for step in steps:
        value = step.value if step.value is not None else value
        print(f"\r{words}: {step.part:.0%} ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return value


def _measured(session: Session, address: str, plan: TrajectoryPlan, words: str) -> Trajectory:
    series = series_of(address)
    return _last(trajectory(target_at(session, series), series, plan).run(session), words)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the runs that come with the app.")
    parser.add_argument("names", nargs="*", default=NAMES, help="recipes by name (default: all that are shipped)")
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs and their results")
    parser.add_argument("--embedded", type=Path, metavar="RUN", help="the embedded model's own run, and no recipe")
    parser.add_argument("--corpus", type=Path, help="folder of .txt or .txt.xz files that RUN is trained on")
    arguments = parser.parse_args()
    session = Session(Store(arguments.work / "store"))
    if arguments.embedded:
        if arguments.corpus:
            corpus, threads = arguments.corpus.absolute(), torch.get_num_threads()
            run = begin(arguments.embedded, DemoRecipe(), corpus, threads, EMBEDDED)
            _last(train(run, EMBEDDED), "training")
        ship(_measured(session, str(arguments.embedded), PLAN_OF_EMBEDDED, "measuring"), EMBEDDED_RUN)
        return
    for name in arguments.names:
        run = begin(arguments.work / name, RECIPES[name].recipe)
        _last(train(run), f"{name}, training")
        steps = ",".join(map(str, steps_measured(run)))
        found = _measured(session, f"{run.folder}@step{{{steps}}}", PLAN, f"{name}, measuring")
        ship(found, name)
        ship_weights(run, found, name)


if __name__ == "__main__":
    main()
