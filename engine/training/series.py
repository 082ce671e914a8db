"""Which snapshots belong together: a run in a folder, or a published series of revisions; read without torch, and
without asking the hub."""

import re
from dataclasses import dataclass
from pathlib import Path

from engine.checkpoints.names import models_of, run_of
from engine.errors import HeadroomError, UsageError
from engine.training.folders import Foreign, Run, opened

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
