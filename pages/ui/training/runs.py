"""The runs to choose from: those that come with the app, those in a folder, and those that are about to begin there.

Read without torch; no streamlit here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine import demo
from engine.checkpoints.names import SHIPPED as RUNS
from engine.checkpoints.names import is_run
from engine.errors import HeadroomError
from engine.files import read_regular
from engine.training.folders import Foreign, Run, opened
from engine.training.recipe import Recipe
from engine.training.trajectory import Trajectory, decode, of_log

SHIPPED, RECORD = demo.runs_folder(), "trajectory.safetensors"
LAST = {demo.RUN: "demo"}  # the model name of a run's last snapshot, if it comes with the app
FIRST, ON_TEXT = ("two-layers", "one-layer"), ("smeared", "plain")  # a run and its control


@dataclass(frozen=True)
class RunSource:
    """The source of a run.

    `record`: the file of its measurements, present or not
    `folder`: its folder with the snapshots, if any
    `model`: without a folder, the name of its last snapshot as a model, or ""
    `begins`: its recipe and its log so far, if it is about to begin in its folder
    """

    name: str
    record: Path
    folder: Path | None = None
    model: str = ""
    begins: tuple[Recipe, Sequence[Mapping[str, Any]]] | None = None

    @property
    def run(self) -> Run | Foreign | None:
        """Returns the run in its folder; None without one."""
        return opened(self.folder) if self.folder is not None and is_run(self.folder) else None

    @property
    def series(self) -> str:
        """Returns what a command names it by."""
        return str(self.record if self.record.exists() or self.folder is None else self.folder)


def sources(folder: Path, beginning: Sequence[RunSource] = ()) -> dict[str, RunSource]:
    """Returns by name the runs that come with the app, those that are `beginning`, and those in the folder."""
    found = {file.stem: RunSource(file.stem, file, SHIPPED / file.stem, LAST.get(file.stem, ""))
             for file in sorted(SHIPPED.glob("*.safetensors"))}  # fmt: skip
    found |= {each.name: each for each in beginning}
    try:
        inside = sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise HeadroomError(f"the folder {folder} cannot be read ({error.strerror}); give another one") from error
    for entry in inside:
        if entry.is_dir() and is_run(entry):
            name = own_name(entry)
            found[name] = RunSource(name, entry / RECORD, entry)
    return found


def own_name(folder: Path) -> str:
    """Returns the name of a run in a folder of one's own."""
    name = folder.name.replace(",", " ")
    return f"{name} (own)" if (SHIPPED / f"{folder.name}.safetensors").exists() else name


def trajectory_of(source: RunSource) -> Trajectory | None:
    """Returns the measurements of a run, or else its log; None without either."""
    try:
        return replace(_read(source.record, source.record.stat().st_mtime_ns), name=source.name)
    except OSError:
        run = source.run
    if isinstance(run, Run) and (log := run.log()):
        return of_log(source.name, run.recipe, log)
    return of_log(source.name, *source.begins) if source.begins is not None and source.begins[1] else None


@lru_cache(32)
def _read(file: Path, stamp: int) -> Trajectory:
    return decode(read_regular(file))


def snapshot_at(source: RunSource, tokens: float) -> tuple[str, float] | None:
    """Returns the model name of the snapshot with weights that is nearest to `tokens`, such as runs/NAME@step512, and
    its tokens; or None."""
    run = source.run
    steps = run.steps() if run is not None else ()
    if run is not None and steps:
        step = min(steps, key=lambda step: abs(run.tokens(step) - tokens))
        folder = f"{RUNS}{source.name}" if run.is_shipped else run.folder
        return f"{folder}@step{step}", run.tokens(step)
    if source.model and (record := trajectory_of(source)) is not None:
        return source.model, float(record.tokens[-1])
    return None
