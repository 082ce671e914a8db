"""The map of heads with the FFNs as its last column, as a control: a click prunes a component or restores it.

A click shows in the browser at once and is reported to Python as an edit with a number; edits that are not confirmed
yet are reported again with the next, so no click is lost however fast they come.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.errors import UsageError
from engine.models.masks import Mask, parse_edits
from engine.shapes import ModelShape
from pages.ui.controls.coloring import Coloring
from pages.ui.controls.study import current, set_study
from pages.ui.figures.charts import row_height
from pages.ui.page.components import component_of

HTML = """
<div class="parts">
  <div class="grid" role="group"></div>
  <div class="scale"><span class="title"></span><div class="ramp"></div><div class="ticks"></div></div>
</div>
"""
_COMPONENT = component_of("head_map", HTML, Path(__file__).parent, "head_map")
KEY, SEEN, ON = "prune_map", "prune_map seen", "prune map shows"
HELD_S = 6.0  # for clicks in a row: each reruns the page, and the browser lags by that much


@dataclass(frozen=True)
class Edit:
    """One click, with the next number: its components (their places, row by row), and whether it prunes them."""

    number: int
    parts: tuple[int, ...]
    pruned: bool


def draw_map(frame: pd.DataFrame, coloring: Coloring, words: str, dropped: Sequence[int]) -> None:
    """Draws the components of `pages.ui.prune.tables.component_frame`, of which whole layers are `dropped`; `words`
    describe them to screen readers."""
    n_rows, columns = int(frame["layer"].max()) + 1, int(frame["head"].max()) + 2
    is_ffn, forms = frame["head"].isna(), (coloring.form(0), coloring.form(1))
    frame = frame.assign(
        place=frame["layer"] * columns + frame["head"].fillna(columns - 1),
        said=[
            "" if np.isnan(score) else f"{coloring.titles[of].lower()} {forms[of](score)}"
            for score, of in zip(frame["score"], is_ffn.astype(int), strict=True)
        ],
    ).sort_values("place")
    top = float(np.nanmax([0.0, *frame.loc[~is_ffn, "score"]])) or 1.0
    scale = [[0.0, "0"], [0.5, forms[0](top / 4)], [1.0, forms[0](top)]]  # the shade is a root
    data = {"words": words, "columns": columns, "row": row_height(n_rows), "title": coloring.titles[0]}
    data |= {"scale": scale if coloring.heads is not None else None, "seen": st.session_state.get(SEEN, 0)}
    data |= {name: frame[name].tolist() for name in ("name", "said", "pruned", "outlined")}
    data |= {"shade": _known(frame["shade"]), "rank": _known(frame["rank"]), "gone": list(dropped)}
    _COMPONENT(key=KEY, data=data, on_edits_change=lambda: None)


def apply_edits() -> None:
    """Sets the mask of the study by the clicks since the last call."""
    on = st.session_state.get(ON)
    if on is None:
        return
    shape, below = on
    try:
        edits = parse_edits(current("mask") or "", shape)
    except UsageError:
        return  # the page reports that instead of the map
    for edit in _new_edits(shape.n_heads_total + shape.n_layers):
        edits = edits.with_named(_mask_of_parts(shape, edit.parts), edit.pruned, below)
        set_study(HELD_S, mask=edits.text())
        st.session_state[SEEN] = edit.number  # last: a request may end this run in between, and the edit is set again


def click_on(shape: ModelShape, below: Mask) -> None:
    """Remembers the subject of the next clicks: a model of `shape`, of which the levels prune `below`."""
    st.session_state[ON] = shape, below


def _known(values: pd.Series) -> list[float | None]:
    """Returns numbers, None where missing."""
    return [None if np.isnan(value) else float(value) for value in values]


def _new_edits(n: int) -> Sequence[Edit]:
    """Returns the edits that the browser reported last and that were not applied yet, validated, in order."""
    said: Any = (st.session_state.get(KEY) or {}).get("edits") or []
    seen, found = st.session_state.get(SEEN, 0), []
    for one in said if isinstance(said, list) else []:
        try:
            edit = Edit(int(one["number"]), tuple(map(int, one["parts"])), one["pruned"] is True)
        except (TypeError, KeyError, ValueError, OverflowError):
            continue
        if edit.number > seen and all(0 <= part < n for part in edit.parts):
            found.append(edit)
    return sorted(found, key=lambda edit: edit.number)


def _mask_of_parts(shape: ModelShape, parts: Sequence[int]) -> Mask:
    kept = np.ones(shape.n_heads_total + shape.n_layers, bool)
    kept[list(parts)] = False
    kept = kept.reshape(shape.n_layers, shape.n_heads + 1)
    return Mask.from_arrays(kept[:, :-1], kept[:, -1])
