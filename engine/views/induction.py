"""Induction scores of every head."""

from functools import partial

import numpy as np

from engine.heads.induction import INDUCTION_FROM, SCORES, InductionScores
from engine.views import kit
from engine.views.importance import component_rows
from engine.views.view import Column, Part, View
from engine.views.words import counted, percent

COLUMNS = {
    "prefix_matching": Column("Prefix matching, share", ".2f"),
    "copying": Column("Copying, no unit", "+.2f"),
    "previous_token": Column("Previous token, share", ".2f"),
    "duplicate_token": Column("Duplicate token, share", ".2f"),
    "ov_eigen": Column("OV copying eigenvalues, −1 to 1", "+.2f"),
    "qk_trace": Column("QK trace, no unit", "+.3g"),
}
SIGNED = {"copying", "ov_eigen", "qk_trace"}


def induction_view(found: InductionScores) -> View:
    """Which heads are induction heads, and a map of the heads by each score."""
    errors = {f"{name}_standard_error": found.standard_error[name] for name in SCORES if found.n[name] > 1}
    rows = component_rows(found.mean | errors)
    columns = {"name": Column("Head")} | COLUMNS
    parts = [
        Part(
            column.title.partition(",")[0],
            rows,
            columns,
            partial(kit.head_map, value=name, signed=name in SIGNED),
            ranked_by=name,
            width=1 / 3,
        )
        for name, column in COLUMNS.items()
        if not np.isnan(found.mean[name]).all()
    ]
    best, n = parts[0].first(1)[0], int(found.is_induction_head.sum())
    share = percent(best["prefix_matching"], 0)
    if n:
        are = "is an induction head" if n == 1 else "are induction heads"
        finding = f"**{n} of {counted(len(rows), 'head')} {are}**, {best['name']} most: {share} of its attention goes "
        finding += "to what followed an earlier copy."
    else:
        finding = f"**No head is an induction head**: {best['name']} comes closest, with {share} of its attention to "
        finding += f"what followed an earlier copy (from {percent(INDUCTION_FROM, 0)}, if it copies more than chance)."
    return View(finding, parts, [found.note] if found.note else [])
