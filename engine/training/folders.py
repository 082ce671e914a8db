"""A run as a folder: what lies in it, and how to read it without torch.

`recipe.json` (the recipe, the text, how many threads), `tokenizer.json`, `text.npy` until the run is done,
`held_out.npy`, `log.jsonl` (measurements), `state.pt` to go on from, `lock` (which process trains it), and a model
folder `stepN` a snapshot. A run of another trainer, or of a kind of model that only its own script knows, says in
recipe.json who made it: such a run is `Foreign`, measured like any other, and gone on with by its script alone.
"""

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from cache.files import InvalidFile, read_bytes
from cache.typed_json import Count, Plain, Threads, decode_json
from engine.checkpoints.names import RECIPE, is_run, steps_of
from engine.demo import runs_folder
from engine.errors import HeadroomError, one_line
from engine.files import write_whole
from engine.training.recipe import Recipe, is_foreign, recipe_of

MAX_RECIPE_BYTES, MAX_LOG_BYTES, MAX_HELD_OUT_BYTES = 1_000_000, 500_000_000, 500_000_000
TEXT, HELD_OUT, LOG, STATE, TOKENIZER = "text.npy", "held_out.npy", "log.jsonl", "state.pt", "tokenizer.json"


@dataclass(frozen=True)
class _RecipeFile:
    """What recipe.json holds."""

    recipe: dict[str, Plain]
    text: str | None = None
    path: str | None = None
    text_digest: str | None = None
    threads: Threads | None = None


class _Step(TypedDict):
    """What a line of another trainer's log must hold."""

    step: Count
    tokens: Count


class _Look(_Step):
    """What a line of the log of a run that was begun here holds."""

    rate: float
    loss: float
    icl: float
    first_copy: float
    second_copy: float
    prefix_matching: list[list[float]]
    previous_token: list[list[float]]
    seconds: float


@dataclass(frozen=True)
class _Snapshots(ABC):
    """Common to runs of all trainers: `about` holds the other fields of recipe.json (text, text_digest)."""

    folder: Path
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

    def log(self) -> list[dict[str, Any]]:
        """The lines of the log so far. A line that was cut off by a kill, or is damaged, is left out."""
        try:
            whole = read_bytes(self.folder / LOG, MAX_LOG_BYTES)
        except (OSError, InvalidFile):
            return []
        lines = []
        for line in whole.split(b"\n"):
            with suppress(InvalidFile):
                lines.append(self._line(line))
        return lines

    def held_out(self) -> np.ndarray:
        """(text, 512) token ids, without a beginning token."""
        file = self.folder / HELD_OUT
        try:
            found = np.lib.format.read_array(io.BytesIO(read_bytes(file, MAX_HELD_OUT_BYTES)), allow_pickle=False)
            if found.ndim != 2 or found.dtype.kind not in "iu" or not found.size or found.min() < 0:
                raise ValueError("it holds no token ids")
        except Exception as error:  # whatever numpy thinks of a damaged file
            how = "make it again with `headroom train`, or give --text"
            why = f"the held-out text of {self.name} ({HELD_OUT}) cannot be read: {one_line(error)}"
            raise HeadroomError(f"{why}; {how}") from error
        return found

    @property
    def is_shipped(self) -> bool:
        """Whether it came with the app, without its held-out text."""
        return self.folder.parent == runs_folder()

    @property
    def has_held_out(self) -> bool:
        """Whether the held-out text can be read."""
        try:
            self.held_out()
        except HeadroomError:
            return False
        return True

    @abstractmethod
    def _line(self, line: bytes) -> Any:
        """A line of the log; InvalidFile if it is none."""


@dataclass(frozen=True)
class Run(_Snapshots):
    """A run that was begun here, by its recipe."""

    recipe: Recipe

    @property
    def label(self) -> str:
        return self.recipe.in_words

    @property
    def alphabet(self) -> int:
        """So many first ids, from 1, are what random tokens are drawn from."""
        return self.recipe.alphabet or self.recipe.n_vocab - 1

    def _line(self, line: bytes) -> Any:
        found = decode_json(line, _Look, LOG)
        shape = self.recipe.n_layers, self.recipe.n_heads
        for name in ("prefix_matching", "previous_token"):
            if [len(heads) for heads in found[name]] != [shape[1]] * shape[0]:
                raise InvalidFile(f"{LOG}: {name} is not of {shape[0]} layers of {shape[1]} heads")
        return found

    def tokens(self, step: int) -> int:
        """Tokens trained on up to that step."""
        return step * self.recipe.step_tokens

    def as_json(self) -> dict[str, Any]:
        """The recipe."""
        return self.recipe.as_json()

    @property
    def is_done(self) -> bool:
        return self.snapshot(self.recipe.n_steps).is_dir()


@dataclass(frozen=True)
class Foreign(_Snapshots):
    """A run of another trainer: `said` is its recipe, flat, with the `trainer`, a `label` and, in `words`, how it was
    trained; what has the name of a field of `Recipe` means the same."""

    said: Mapping[str, Any]
    alphabet: int = 0  # random tokens are drawn from the tokenizer's merges

    @property
    def label(self) -> str:
        return str(self.said.get("label") or self.said["trainer"])

    def steps(self) -> tuple[int, ...]:
        """The steps whose snapshots are there and in the log, in order."""
        return tuple(step for step in super().steps() if step in self._tokens)

    def tokens(self, step: int) -> int:
        """Tokens trained on up to that step, as the log says."""
        return self._tokens[step]

    @cached_property
    def _tokens(self) -> dict[int, int]:
        return {0: 0} | {line["step"]: line["tokens"] for line in self.log()}

    def _line(self, line: bytes) -> Any:
        return decode_json(line, _Step, LOG)

    def as_json(self) -> dict[str, Any]:
        """The recipe."""
        return dict(self.said)


def opened(folder: Path) -> Run | Foreign:
    """The run in a folder, of any trainer. HeadroomError or UsageError: there is none, or it has another version."""
    try:
        said = decode_json(read_bytes(folder / RECIPE, MAX_RECIPE_BYTES), _RecipeFile, RECIPE)
    except (OSError, InvalidFile) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise HeadroomError(
            f"{folder} is not a training run ({RECIPE} is missing or damaged: {why}); use the folder of one"
        ) from error
    about = {name: value for name, value in vars(said).items() if name != "recipe" and value is not None}
    if is_foreign(said.recipe):
        return Foreign(folder, about, said.recipe)
    return Run(folder, about, recipe_of(said.recipe))


def open_run(folder: Path, recipe: Recipe | None = None) -> Run:
    """The Run in a folder, to be gone on with. HeadroomError or UsageError: as `opened`, or it is another trainer's and
    was not made by `recipe`."""
    run = opened(folder)
    if isinstance(run, Foreign):
        if recipe is not None and recipe.as_json() == run.said:
            return Run(folder, run.about, recipe)
        raise HeadroomError(f"{folder} is a run of {run.said['trainer']}, which alone goes on with it; give another "
                            f"folder")  # fmt: skip
    return run


def runs_in(folder: Path) -> list[Run]:
    """The runs of a folder that were begun here and can be opened, by name."""
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
    """Writes the file, whole or not at all; HeadroomError if the disk does not take it. What a kill leaves has a name
    that is known as part of a run."""
    try:
        write_whole(path, data, f"{path.name}.new")
    except OSError as error:
        raise not_written(path, error) from error


def not_written(path: Path, error: OSError) -> HeadroomError:
    """The error that says why something of a run was not written, and that nothing is lost."""
    return HeadroomError(f"{path} cannot be written ({error.strerror}); make room and start the run again: it goes on "
                         f"where it was")  # fmt: skip
