"""The source of the Training screen's numbers: the records of runs, which a command and a program read."""

from collections.abc import Mapping, Sequence

import pandas as pd

from engine.requests import MeasureTrajectory
from pages.ui.downloads.origin import Origin
from pages.ui.training.runs import DrawnRun, RunSource

FIELDS = ("n_layers", "mlp", "smeared", "positions", "repeats", "n_heads", "d_model", "n_ctx", "n_vocab", "batch",
          "rate", "tokens", "seed", "step_tokens", "words")  # fmt: skip
SAID = ("text", "text_digest", "n_texts", "early", "late", "around", "n_ablated_texts", "seconds")


def origin(runs: Sequence[DrawnRun], sources: Mapping[str, RunSource], in_full: bool) -> Origin:
    """Returns the requests of the results shown of these runs, which are described `in_full`, or not at all."""
    requests = [
        MeasureTrajectory(
            series=str(sources[run.name].record),
            out=f"{run.name}.csv",
            average_tokens=run.trajectory.about.get("around", 0),
        )
        for run in runs
    ]
    about = " · ".join(run.in_full for run in runs) if in_full else ""
    return Origin("Training", requests, {}, about, ", ".join(run.label for run in runs))


def recipes(runs: Sequence[DrawnRun]) -> pd.DataFrame:
    """Returns one row per run: its recipe, and the data it was measured on."""
    rows = []
    for run in runs:
        made, said, where = run.trajectory.recipe or {}, run.trajectory.about, run.window
        row = {"run": run.label, "snapshots": len(run.trajectory.steps)}
        row |= {name: made.get(name) for name in FIELDS} | {name: said.get(name) for name in SAID}
        row |= {"window_start": where.start if where else None, "window_end": where.end if where else None}
        rows.append(row | {"share_in_window": where.share if where else None})
    return pd.DataFrame(rows)
