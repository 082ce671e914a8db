"""A run as a folder: what lies in it, and how to read it without torch.

`recipe.json` (the recipe, the text, how many threads), `tokenizer.json`, `text.npy` until the run is done,
`held_out.npy`, `log.jsonl` (a line a look), `state.pt` to go on from, `lock` (which process trains it), and a model
folder `stepN` a snapshot.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import HeadroomError
from engine.models.runs import RECIPE, is_run, steps_of
from engine.training.recipe import Recipe, recipe_of

TEXT, HELD_OUT, LOG, STATE, TOKENIZER = "text.npy", "held_out.npy", "log.jsonl", "state.pt", "tokenizer.json"


@dataclass(frozen=True)
class Run:
    """A run that was begun: `about` is what recipe.json says beside the recipe (text, text_digest, threads)."""

    folder: Path
    recipe: Recipe
    about: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    def steps(self) -> tuple[int, ...]:
        """The steps whose snapshots are there, in order; one that was deleted is none."""
        return steps_of(self.folder)

    def snapshot(self, step: int) -> Path:
        """The model folder of one step, there or not."""
        return self.folder / f"step{step}"

    def tokens(self, step: int) -> int:
        """Tokens trained on up to that step."""
        return step * self.recipe.step_tokens

    @property
    def is_done(self) -> bool:
        return self.snapshot(self.recipe.n_steps).is_dir()

    def log(self) -> list[dict[str, Any]]:
        """The lines of the log so far; one that was cut off by a kill is left out."""
        lines = []
        try:
            text = (self.folder / LOG).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        for line in text.splitlines():
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if isinstance(said, dict) and "step" in said:
                lines.append(said)
        return lines

    def held_out(self) -> np.ndarray:
        """(text, 512) token ids, without a beginning token."""
        try:
            return np.load(self.folder / HELD_OUT, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise HeadroomError(f"{self.folder / HELD_OUT} cannot be read; train the run again") from error


def open_run(folder: Path) -> Run:
    """The Run in a folder. HeadroomError or UsageError: there is none, or it is of another version."""
    try:
        said = json.loads((folder / RECIPE).read_text(encoding="utf-8"))
        recipe = said["recipe"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HeadroomError(f"{folder} is no run ({RECIPE} is missing or damaged); give the folder of one") from error
    return Run(folder, recipe_of(recipe), {name: value for name, value in said.items() if name != "recipe"})


def runs_in(folder: Path) -> list[Run]:
    """The runs of a folder that can be opened, by name."""
    try:
        inside = sorted(entry for entry in folder.iterdir() if is_run(entry))
    except OSError:
        return []
    found = []
    for each in inside:
        with suppress(HeadroomError):  # damaged, or of another version
            found.append(open_run(each))
    return found


def write(path: Path, data: bytes) -> None:
    """The file whole or not at all; HeadroomError where the disk does not take it. What a kill leaves beside it has a
    name of its own, so that it is known as part of a run (`engine.files.write_whole` takes one at random)."""
    aside = path.with_name(f"{path.name}.new")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise not_written(path, error) from error


def not_written(path: Path, error: OSError) -> HeadroomError:
    """The error that says why something of a run was not written, and that nothing is lost."""
    return HeadroomError(f"{path} cannot be written ({error.strerror}); make room and start the run again: it goes on "
                         f"where it was")  # fmt: skip
