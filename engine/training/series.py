"""Which snapshots belong together: a run in a folder, or a published series of revisions; read without torch."""

import re
from dataclasses import dataclass
from pathlib import Path

from engine.errors import HeadroomError, UsageError
from engine.models.names import models_of
from engine.models.runs import is_run
from engine.training.folders import Run, open_run

STEP = re.compile(r"step(\d{1,12})")
OF_A_STEP = {"EleutherAI/pythia-": 2_097_152}  # tokens, of what a name begins with


@dataclass(frozen=True)
class Series:
    """Snapshots in the order of training: `models` as they are typed, `steps` and `tokens` trained on before each.
    `run`: the run they are of (None: a published series)."""

    name: str
    label: str
    models: tuple[str, ...]
    steps: tuple[int, ...]
    tokens: tuple[int, ...]
    run: Run | None = None


def series_of(text: str, step_tokens: int | None = None) -> Series:
    """The Series that `text` names: the folder of a run, `RUN@step{0,512}`, or `org/model@step{0,512}`.

    `step_tokens`: tokens of a step of a published series, known for Pythia. HeadroomError or UsageError: there is none,
    a step that is not there, a run of another version.
    """
    text = text.strip()
    folder, _, revision = text.partition("@") if "@" in text else (text, "", "")
    if _is_folder(folder):
        run = open_run(Path(folder).expanduser())
        there = run.steps()
        steps = tuple(sorted({_step(name) for name in models_of(f"run@{revision}")})) if revision else there
        if not steps:
            raise HeadroomError(f"{folder} has no snapshots yet; train it first: `headroom train --out {folder}`")
        for step in steps:
            if step not in there:
                raise HeadroomError(f"{folder} has no snapshot of step {step}; there are those of "
                                    f"{', '.join(map(str, there))}")  # fmt: skip
        models = tuple(str(run.snapshot(step)) for step in steps)
        return Series(run.name, run.recipe.in_words, models, steps, tuple(map(run.tokens, steps)), run)
    names = models_of(text)
    if "@" not in text or folder == "demo":
        raise HeadroomError(f"{text[:80]!r} is neither the folder of a run nor a series of snapshots; give a run, or a "
                            f"series such as EleutherAI/pythia-70m@step{{0,512,1000}}")  # fmt: skip
    by_step = sorted((_step(name), name) for name in names)
    each = step_tokens or next((n for begins, n in OF_A_STEP.items() if folder.startswith(begins)), None)
    if each is None:
        raise UsageError(f"how many tokens a step of {folder} has is not known here; give --step-tokens")
    steps = tuple(step for step, _ in by_step)
    return Series(text, folder, tuple(name for _, name in by_step), steps, tuple(step * each for step in steps))


def _is_folder(text: str) -> bool:
    """Whether a run was begun there. HeadroomError: it is a folder without one."""
    try:
        folder = Path(text).expanduser()
        if not folder.is_dir():
            return False
    except (OSError, RuntimeError, ValueError):
        return False
    if not is_run(folder):
        raise HeadroomError(f"{text} is a folder, but of no run (it has no recipe.json); give the folder of a run")
    return True


def _step(name: str) -> int:
    """The number in a name that ends in `@stepN`."""
    found = STEP.fullmatch(name.rpartition("@")[2])
    if found is None:
        raise UsageError(f"{name[:80]!r} is no snapshot of a series; each must end in @step and a number, such as "
                         f"@step{{0,512,1000}}")  # fmt: skip
    return int(found[1])
