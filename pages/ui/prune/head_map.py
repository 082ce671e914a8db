"""The map of heads, and the FFNs next to it, as a control: a click prunes a component or restores it.

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
from pages.ui.controls.study import current, set_study
from pages.ui.figures.charts import row_height
from pages.ui.page.components import component_of
from pages.ui.page.tables import magnitude, percent
from pages.ui.prune.charts import ACCURACY_LOST
from pages.ui.prune.tables import LAYER_GONE

HTML = """
<div class="parts">
  <div class="grid" role="group"></div>
  <div class="scale"><span class="title"></span><div class="ramp"></div><div class="ticks"></div></div>
</div>
"""
_COMPONENT = component_of("head_map", HTML, Path(__file__).parent, "head_map")
ON = "prune maps show"
HELD_S = 6.0  # for clicks in a row: each reruns the page, and the browser lags by that much


@dataclass(frozen=True)
class Edit:
    """One click: its components (flat indices), and whether it prunes them. Each has the next number."""

    number: int
    parts: tuple[int, ...]
    pruned: bool


def draw_heads(frame: pd.DataFrame, words: str, title: str, ringed: Sequence[int] = ()) -> None:
    """Draws the map of heads of `pages.ui.prune.tables.head_frame`, those in `ringed` (by flat index) outlined; `words`
    describe it to screen readers, `title` names its scores."""
    known = _scores(frame["score"])
    top = max((score for score in known if score is not None), default=0.0) or 1.0
    # as in the picture: most heads score far below the best few; the root keeps them apart
    shade = [None if score is None else max(score / top, 0.0) ** 0.5 for score in known]
    n_columns = int(frame["head"].max()) + 1
    scale = None if None in known else [[0.0, "0"], [0.5, magnitude(top / 4)], [1.0, magnitude(top)]]
    look = {"columns": n_columns, "shade": shade, "scale": scale, "title": title, "ringed": list(ringed)}
    _draw("heads", frame, words, look)


def draw_ffns(frame: pd.DataFrame, words: str, title: str) -> None:
    """Draws one bar per FFN of `pages.ui.prune.tables.ffn_frame`, each with its number."""
    known = _scores(frame["score"])
    there = [score for score in known if score is not None]
    low, high = min([0.0, *there]), max([0.0, *there])
    reach = (high - low) or 1.0
    bars = [None if score is None else [(min(score, 0.0) - low) / reach, abs(score) / reach] for score in known]
    form = magnitude if title != ACCURACY_LOST else percent
    said = ["" if score is None else form(score) for score in known]
    _draw("ffns", frame, words, {"columns": 1, "bars": bars, "said": said, "zero": -low / reach, "title": title})


def apply_edits() -> None:
    """Has the next run of the page write the clicks since the last call into the study's mask."""
    on = st.session_state.get(ON)
    if on is None:
        return
    shape, below = on
    try:
        edits = parse_edits(current("mask") or "", shape)
    except UsageError:
        return  # the page reports that instead of the map
    for what, n in (("heads", shape.n_heads_total), ("ffns", shape.n_layers)):
        for edit in _new_edits(_key(what), n):
            edits = edits.with_named(_mask_of_parts(shape, what, edit.parts), edit.pruned, below)
            st.session_state[f"{_key(what)} seen"] = edit.number
            set_study(HELD_S, mask=edits.text())


def click_on(shape: ModelShape, below: Mask) -> None:
    """Remembers the subject of the next clicks: a model of `shape`, of which the levels prune `below`."""
    st.session_state[ON] = shape, below


def _draw(what: str, frame: pd.DataFrame, words: str, look: dict[str, Any]) -> None:
    rank = [None if np.isnan(value) else int(value) for value in frame["rank"]]
    score = [None if np.isnan(value) else magnitude(value, 3) for value in frame["score"]]
    data = {"words": words, "names": frame["name"].tolist(), "layers": frame["layer"].tolist(), "score": score}
    data |= {"rank": rank, "pruned": frame["pruned"].tolist(), "row": row_height(int(frame["layer"].max()) + 1)}
    data["gone"] = sorted({int(layer) for layer in frame.loc[frame["state"] == LAYER_GONE, "layer"]})
    data |= {"seen": st.session_state.get(f"{_key(what)} seen", 0), **look}
    _COMPONENT(key=_key(what), data=data, on_edits_change=lambda: None)


def _scores(values: pd.Series) -> list[float | None]:
    """Returns the scores, None where missing."""
    return [None if np.isnan(value) else float(value) for value in values]


def _key(what: str) -> str:
    return f"prune_{what}_map"


def _new_edits(key: str, n: int) -> Sequence[Edit]:
    """Returns the edits that the browser reported last and that were not applied yet, validated, in order."""
    said: Any = (st.session_state.get(key) or {}).get("edits") or []
    seen, found = st.session_state.get(f"{key} seen", 0), []
    for one in said if isinstance(said, list) else []:
        try:
            parts = tuple(int(part) for part in one["parts"])
            edit = Edit(int(one["number"]), parts, one["pruned"] is True)
        except (TypeError, KeyError, ValueError, OverflowError):
            continue
        if edit.number > seen and all(0 <= part < n for part in parts):
            found.append(edit)
    return sorted(found, key=lambda edit: edit.number)


def _mask_of_parts(shape: ModelShape, what: str, parts: Sequence[int]) -> Mask:
    heads, ffns = np.ones(shape.n_heads_total, bool), np.ones(shape.n_layers, bool)
    (heads if what == "heads" else ffns)[list(parts)] = False
    return Mask.from_arrays(heads.reshape(shape.n_layers, shape.n_heads), ffns)
