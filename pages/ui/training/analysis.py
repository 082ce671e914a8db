"""The model analysis table of Olsson et al. as one picture: a column per run, nine rows."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from pages.ui.figures import charts
from pages.ui.training import tables
from pages.ui.training.charts import ABLATED, TokenAxis, ablation_panel, heads_panel, joined, run_panel
from pages.ui.training.loss_charts import heat_panel
from pages.ui.training.paths import path_panel
from pages.ui.training.runs import DrawnRun

WIDTH_PX = 250
ROWS = (
    "Path of the per-token losses", "Loss", "Loss by index", "d loss / d ln(index)", "In-context score",
    "Prefix matching", "QK trace", f"Ablation: {ABLATED['along'][0].lower()}{ABLATED['along'][1:]}",
    "Ablation: change of in-context score, nats",
)  # fmt: skip


def analysis_table(runs: Sequence[DrawnRun], look: TokenAxis, found: Sequence[np.ndarray] | None) -> charts.Picture:
    """Returns for each run its path on the two components (`found`; None: not computed), loss, loss by index, its
    slope, in-context score, prefix matching and QK trace of every head, and both effects of ablating each head."""
    every, where = tables.over_training(runs), tables.windows(runs)
    on_path = None if found is None else tables.paths(runs, found)
    columns = [_column(run, every, where, look) for run in runs]
    panels, titles = [], []
    for number, title in enumerate(ROWS):
        if number == 0 and on_path is None:
            continue
        for run, column in zip(runs, columns, strict=True):
            if number == 0 and on_path is not None:
                panels.append(path_panel(on_path, run.label, look))
            else:
                panels.append(column[number - 1])
            titles.append(title)
    return joined(panels, len(runs), WIDTH_PX, titles)


def _column(run: DrawnRun, every: pd.DataFrame, where: pd.DataFrame, look: TokenAxis) -> list[charts.Picture]:
    """Returns all rows of one run but the first."""
    name, (n_layers, _) = run.label, run.shape
    ablated = tables.ablations(run)
    of_heads = partial(heads_panel, windows=where, run=name, look=look, n_layers=n_layers)
    return [
        run_panel(every, where, name, look, "loss"),
        heat_panel(tables.by_index(run), where, name, look, "loss"),
        heat_panel(tables.slopes(run), where, name, look),
        run_panel(every, where, name, look),
        of_heads(tables.head_scores(run, "prefix_matching"), score="prefix_matching"),
        of_heads(tables.head_scores(run, "qk_trace"), score="qk_trace"),
        ablation_panel(ablated, where, name, look, "along"),
        ablation_panel(ablated, where, name, look, "score"),
    ]
