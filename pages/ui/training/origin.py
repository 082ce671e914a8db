"""Where the Training screen's numbers come from: the command that measures a run, and the program that reads it."""

import shlex
from collections.abc import Mapping, Sequence

import pandas as pd

from pages.ui.shared.commands import program
from pages.ui.shared.origin import Origin
from pages.ui.training.runs import DrawnRun, RunSource
from pages.ui.training.tables import in_words

FIELDS = ("n_layers", "mlp", "smeared", "positions", "repeats", "n_heads", "d_model", "n_ctx", "n_vocab", "batch",
          "rate", "tokens", "seed", "step_tokens", "words")  # fmt: skip
SAID = ("text", "text_digest", "n_texts", "early", "late", "around", "n_ablated_texts", "seconds")


def origin(runs: Sequence[DrawnRun], sources: Mapping[str, RunSource]) -> Origin:
    """Command, program and words for what is shown of these runs."""
    lines, reads = [], []
    for run in runs:
        source = sources[run.name]
        words = [program(), "trajectory", str(source.folder or run.name), "--out", f"{run.name}.csv"]
        around = run.trajectory.about.get("around")
        command = shlex.join([*words, *(["--around", str(around)] if around else [])])
        lines.append(command if source.folder else f"# from its snapshots, which are not here: {command}")
        reads.append(f"    {run.name!r}: {str(source.record)!r},")
    code = "\n".join(
        ["from pathlib import Path", "", "from engine.training.phase_change import window",
         "from engine.training.trajectory import decode", "", "files = {", *reads, "}",
         "for name, file in files.items():", "    run = decode(Path(file).read_bytes())",
         "    where = window(run.tokens, run.icl)",
         '    said = f"{where.start:,.0f} to {where.end:,.0f} tokens" if where else "none"',
         '    print(f"{name}: loss {run.loss[-1]:.3f}, in-context score {run.icl[-1]:+.3f} nats, phase change {said}")']
    )  # fmt: skip
    about = " · ".join(run.in_full for run in runs)
    return Origin("Training", "\n".join(lines), code, {}, about, [in_words(run) for run in runs])


def recipes(runs: Sequence[DrawnRun]) -> pd.DataFrame:
    """A row a run: how it was made, and on what it was measured."""
    rows = []
    for run in runs:
        made, said, where = run.trajectory.recipe or {}, run.trajectory.about, run.window
        row = {"run": run.label, "snapshots": len(run.trajectory.steps)}
        row |= {name: made.get(name) for name in FIELDS} | {name: said.get(name) for name in SAID}
        row |= {"window_start": where.start if where else None, "window_end": where.end if where else None}
        rows.append(row | {"share_in_window": where.share if where else None})
    return pd.DataFrame(rows)
