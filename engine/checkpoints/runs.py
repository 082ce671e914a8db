"""Runs of training as places where models lie: a folder with recipe.json and a model folder `stepN` a snapshot. Read
here without torch, and without what a recipe means (`engine.training`).

A run is typed as its folder's path; one that comes with the app as `runs/NAME`.
"""

import re
from pathlib import Path

from engine.demo import runs_folder
from engine.errors import UsageError

RECIPE, WEIGHTS = "recipe.json", "model.safetensors"
STEP = re.compile(r"step(0|[1-9]\d{0,17})")
SHIPPED = "runs/"


def is_run(folder: Path) -> bool:
    """Whether a run was begun in that folder; a folder that is a model itself is none."""
    return (folder / RECIPE).is_file() and not (folder / "config.json").exists()


def steps_of(folder: Path) -> tuple[int, ...]:
    """The steps whose snapshots are in a run's folder, in order; one that is not whole is none."""
    found = (STEP.fullmatch(entry.name) for entry in folder.iterdir())
    return tuple(sorted(int(match[1]) for match in found if match and (folder / match[0] / WEIGHTS).is_file()))


def run_of(text: str) -> tuple[str, Path] | None:
    """(the run's name, its folder) of a path or `runs/NAME`; None where that is no run."""
    try:
        folder = Path(text).expanduser()
        if text and folder.is_dir():
            folder = folder.resolve()
            return (str(folder), folder) if is_run(folder) else None
        name = text.removeprefix(SHIPPED)
        folder = runs_folder() / name
        shipped = text.startswith(SHIPPED) and Path(name).name == name and folder.is_dir() and is_run(folder)
        return (text, folder) if shipped else None
    except (OSError, RuntimeError, ValueError):  # too long, no such user, a NUL
        return None


def shipped_runs() -> tuple[str, ...]:
    """The names, as they are typed, of the runs that come with the app with weights."""
    folder = runs_folder()
    names = sorted(entry.name for entry in folder.iterdir() if is_run(entry)) if folder.is_dir() else []
    return tuple(f"{SHIPPED}{name}" for name in names)


def step_of(run: str, folder: Path, revision: str | None) -> int:
    """The step that `revision` (`stepN`) names of a run, without one its last. UsageError: there is none such, and
    which are the nearest."""
    try:
        steps = steps_of(folder)
    except OSError as error:
        raise UsageError(f"the run {run} cannot be read ({error.strerror}); look at its permissions") from error
    if not steps:
        raise UsageError(f"the run {run} has no snapshot yet; begin it, or wait for its first")
    if revision is None:
        return steps[-1]
    match = STEP.fullmatch(revision)
    if match is None:
        raise UsageError(f"{revision[:40]!r} is not a snapshot of {run}; use @stepN, such as @step{steps[-1]}")
    if (step := int(match[1])) in steps:
        return step
    before, behind = ([each for each in steps if each < step][-1:], [each for each in steps if each > step][:1])
    nearest = [f"step{each}" for each in (*before, *behind)]
    are = "nearest are" if len(nearest) > 1 else "nearest is"
    raise UsageError(f"the run {run} has no snapshot step{step}; the {are} {' and '.join(nearest)}")
