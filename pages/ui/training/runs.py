"""The available runs and their records: those that come with the app, and runs in a folder.

Read without torch; no streamlit here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from engine import demo
from engine.checkpoints.names import SHIPPED as RUNS
from engine.checkpoints.names import is_run
from engine.errors import HeadroomError, UsageError
from engine.files import read_regular
from engine.training.folders import Foreign, Run, opened
from engine.training.phase_change import Window, window
from engine.training.recipe import Recipe, recipe_of
from engine.training.trajectory import Trajectory, decode
from pages.ui.page.tables import typeset

SHIPPED, RECORD = demo.runs_folder(), "trajectory.safetensors"
LAST = {demo.RUN: "demo"}  # the model name of a run's last snapshot, if it comes with the app
BEST = ("curriculum", "smeared", "curriculum-1-layer")  # runs chosen at first, if available
N_FIRST = 3
SMEARED = "each key mixes in the previous"
SMEARED_HELP = "each key includes a learned share of the previous one, so that one layer can match prefixes."
# fields that distinguish two runs of one label, and their text
APART = {"seed": "seed {}", "batch": "{} rows a step", "n_ctx": "context {}", "rate": "rate {:g}",
         "d_model": "width {}", "n_heads": "{} heads", "tokens": "{:,} tokens", "n_vocab": "vocabulary {}"}  # fmt: skip


@dataclass(frozen=True)
class RunSource:
    """The source of a run: its `record` (present or not), and its folder with the snapshots, if any. `model`: without a
    folder, the name of its last snapshot as a model, or ""."""

    name: str
    record: Path
    folder: Path | None = None
    model: str = ""

    @property
    def run(self) -> Run | Foreign | None:
        """Returns the run in its folder; None without snapshots."""
        return opened(self.folder) if self.folder is not None else None

    @property
    def has_weights(self) -> bool:
        """Returns whether a snapshot of it can be opened on the other screens."""
        return self.folder is not None or self.model != ""


@dataclass(frozen=True)
class DrawnRun:
    """A run as drawn: its short `label`, its measurements, the window of its phase change (None: without one), and its
    recipe as text."""

    name: str
    label: str
    trajectory: Trajectory
    window: Window | None
    in_full: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """Returns (layers, heads per layer)."""
        return next(iter(self.trajectory.heads.values())).shape[1:]

    @property
    def is_smeared(self) -> bool:
        """Returns whether its keys are smeared."""
        return bool((self.trajectory.recipe or {}).get("smeared"))

    @property
    def about(self) -> str:
        """Returns its recipe as text for a tooltip, which explains smeared keys."""
        return f"{self.in_full}. Smeared keys: {SMEARED_HELP}" if self.is_smeared else self.in_full


def sources(folder: Path | None) -> dict[str, RunSource]:
    """Returns by name the runs that come with the app, then those in the folder, if there is one."""
    shipped = sorted(SHIPPED.glob("*.safetensors"), key=lambda file: (file.stem not in LAST, file.stem))
    found = {file.stem: RunSource(file.stem, file, _run_or_none(SHIPPED / file.stem), LAST.get(file.stem, ""))
             for file in shipped}  # fmt: skip
    try:
        inside = sorted(folder.iterdir()) if folder is not None and folder.is_dir() else []
    except OSError as error:
        raise HeadroomError(f"the folder {folder} cannot be read ({error.strerror}); give another one") from error
    for entry in inside:
        if entry.is_dir() and is_run(entry):
            name = (entry.name if entry.name not in found else f"{entry.name} (in the folder)").replace(",", " ")
            found[name] = RunSource(name, entry / RECORD, entry)
    return found


def trajectory_of(source: RunSource) -> Trajectory | None:
    """Returns the measurements of a run; None if there are none yet, or another version of the app wrote them."""
    try:
        stamp = source.record.stat().st_mtime_ns
    except OSError:
        return None
    return _read(source.record, stamp)


@lru_cache(32)
def _read(file: Path, stamp: int) -> Trajectory | None:
    try:
        return decode(read_regular(file))
    except (OSError, HeadroomError):
        return None


def labels(found: Mapping[str, Trajectory | None], recipes: Mapping[str, Recipe | None]) -> dict[str, str]:
    """Returns by name the recipe as text, its share of repeats, and what distinguishes it from another run's."""
    words = {name: _describe_recipe(name, found[name], recipes[name]) for name in found}
    unique = {}
    for name, label in words.items():
        like = [recipes[other] for other in words if words[other] == label]
        own, differs = recipes[name], []
        if own is not None and len(like) > 1:
            others = [recipe for recipe in like if recipe is not None]
            differs = [form.format(getattr(own, field)) for field, form in APART.items()
                       if len({getattr(recipe, field) for recipe in others}) > 1]  # fmt: skip
        unique[name] = ", ".join([label, *differs])
    alike = {label for label in unique.values() if list(unique.values()).count(label) > 1}
    return {name: f"{label} ({name})" if label in alike else label for name, label in unique.items()}


def short_labels(full: Mapping[str, str], recipes: Mapping[str, Recipe | None]) -> dict[str, str]:
    """Returns by name a label for a legend, such as "1 layer, smeared keys". Of several runs that would have the
    same, the others add whatever distinguishes them from the first; without a recipe it is the one in `full`."""
    first: dict[str, Recipe] = {}
    taken: dict[str, str] = {}
    for name in _best_first(full):
        label, recipe = full[name], recipes[name]
        if recipe is not None:
            like = first.setdefault(recipe.in_short, recipe)
            differs = [form.format(getattr(recipe, field)) for field, form in APART.items()
                       if getattr(recipe, field) != getattr(like, field)]  # fmt: skip
            repeats = [recipe.repeats_in_words] if recipe.repeats_in_words != like.repeats_in_words else []
            label = recipe.in_short
            for word in (*repeats, *differs):
                label = f"{label}, {word}" if label in taken.values() else label
        taken[name] = f"{label} ({name})" if label in taken.values() else label
    return {name: taken[name] for name in full}


def recipe_in(source: RunSource, trajectory: Trajectory | None) -> Recipe | None:
    """Returns the run's recipe; None for a published one, another trainer's, or another version's."""
    try:
        if trajectory is not None:
            return recipe_of(trajectory.recipe) if trajectory.recipe is not None else None
        run = source.run
        return run.recipe if isinstance(run, Run) else None
    except (HeadroomError, UsageError):
        return None


def shown(
    names: Sequence[str],
    short: Mapping[str, str],
    found: Mapping[str, Trajectory | None],
    full: Mapping[str, str] | None = None,
) -> tuple[DrawnRun, ...]:
    """Returns the measured runs of these names, with their labels `short`; `full`: their recipes as text."""
    measured = [(name, trajectory) for name in names if (trajectory := found[name]) is not None]
    words = full or short
    return tuple(DrawnRun(name, short[name], each, _window(each), typeset(words[name])) for name, each in measured)


def first_names(found: Iterable[str]) -> list[str]:
    """Returns the runs chosen at first: one that never changes and two that do, if available."""
    return _best_first(found)[:N_FIRST]


def _best_first(found: Iterable[str]) -> list[str]:
    names = list(found)
    best = [name for name in BEST if name in names]
    return best + [name for name in names if name not in best]


def snapshot_at(source: RunSource, tokens: float) -> tuple[int, float] | None:
    """Returns (step, tokens) of the snapshot with weights that is nearest to `tokens`, or None."""
    run = source.run
    steps = run.steps() if run is not None else ()
    if run is not None and steps:
        step = min(steps, key=lambda step: abs(run.tokens(step) - tokens))
        return step, run.tokens(step)
    if source.model and (record := trajectory_of(source)) is not None:
        return int(record.steps[-1]), float(record.tokens[-1])
    return None


def typed(source: RunSource, step: int) -> str:
    """Returns the model name of a snapshot, such as runs/NAME@step512."""
    folder = source.folder
    if folder is None:
        return source.model
    return f"{RUNS}{source.name}@step{step}" if folder.parent == SHIPPED else f"{folder}@step{step}"


def _run_or_none(folder: Path) -> Path | None:
    return folder if is_run(folder) else None


def _describe_recipe(name: str, trajectory: Trajectory | None, recipe: Recipe | None) -> str:
    if recipe is None:
        return trajectory.label if trajectory is not None else name
    return recipe.in_full


@lru_cache(32)
def _window_of(key: tuple[str, bytes, bytes]) -> Window | None:
    import numpy as np

    return window(*(np.frombuffer(raw, np.float32) for raw in key[1:]))


def _window(each: Trajectory) -> Window | None:
    return _window_of((each.name, each.tokens.astype("f4").tobytes(), each.icl.astype("f4").tobytes()))
