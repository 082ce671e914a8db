"""Heads selected on a screen: one set, wherever it was clicked, shown everywhere and sent to other screens.

Each chart and the table keep their own selection in the browser. The last one used decides; the others
get a new key, which clears them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.models.masks import Mask, parse_mask
from engine.shapes import ModelShape
from engine.views.pictures import Picture
from pages.ui.controls import carried
from pages.ui.controls.heads import open_heads, open_heads_in_text, open_prune
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.induction.charts import TITLES
from pages.ui.induction.charts import shown as shown_as
from pages.ui.page.marks import mark
from pages.ui.page.presentation import presenting
from pages.ui.page.tables import number, percent

SELECTED, OWNER, TURN = "heads_selected", "heads_selected_in", "heads_selected_turn"
REPORTED = "heads_reported"  # by key of a table: the heads that the browser last had selected in it
TABLE = "table"
MOST_LISTED = 8
PRUNE_HELP = "Opens the Prune screen without them: how many questions does the model still answer?"
KEEP_HELP = "Opens the Prune screen with only them."
COLUMNS = TITLES | {"ov_eigen": "OV eigenvalues"}  # a title that fits its column


def selected_heads(shape: ModelShape) -> tuple[str, ...]:
    """Returns the names of the selected heads that this model has."""
    return tuple(name for name in st.session_state.get(SELECTED, ()) if name in shape.head_names)


def chart_with_heads(view: str, name: str, picture: Picture, words: str, sheet: Sheet) -> None:
    """Draws a chart whose selection `head` (layer, head) selects heads; `words` say the same to screen readers."""
    key = _key(view)
    sheet.draw(name, picture, key, words, on_select=partial(_from_chart, view, key), selection_mode="head")


def head_table(frame: pd.DataFrame) -> None:
    """Draws the heads as a table, best prefix matching first; selected rows are selected heads."""
    shown = frame.sort_values("prefix_matching", ascending=False).reset_index(drop=True)
    key = _key(TABLE)
    if key not in st.session_state:
        rows = shown.index[shown["selected"]].tolist()
        st.session_state[key] = {"selection": {"rows": rows, "columns": [], "cells": []}}
        st.session_state.setdefault(REPORTED, {})[key] = set(shown["name"][rows])
    config: dict[str, Any] = {"name": st.column_config.TextColumn("Head", pinned=True)}
    config |= {shown_as(name): title for name, title in COLUMNS.items()}
    words = {shown_as(name): number for name in TITLES} | {"copying_share": percent}
    selects = {"selection_mode": "multi-row", "on_select": partial(_from_table, key, tuple(shown["name"]))}
    about = "All heads with their induction scores"
    draw_table(shown, config, about, formats=words, height=330, key=key, **selects)


def draw_actions(
    shape: ModelShape, names: Sequence[str], induction: Sequence[str], mask: Mask, n_weak: int = 0
) -> None:
    """Draws the actions on the selected heads, or on the induction heads if none is selected, `n_weak` of which copy
    hardly more than chance; nothing on a slide."""
    chosen = names or induction
    if presenting() or not chosen:
        return
    if names:
        mark("selection", "chosen", heads=" ".join(names))
    keep = False
    with st.container(horizontal=True, vertical_alignment="center"):
        gone = not np.array(mask.heads).ravel()[[shape.head_names.index(name) for name in chosen]].any()
        if gone:
            st.button("Restore them", icon=":material/undo:", on_click=_restore, args=(shape, chosen, mask))
        n = len(induction) - n_weak
        of_all = f"Prune these {n} and the {n_weak} weak ones" if n_weak else f"Prune the induction heads ({n})"
        words = "Prune these" if names else of_all
        prune = not gone and st.button(words, icon=":material/content_cut:", type="primary", help=PRUNE_HELP)
        if names:
            keep = st.button("Keep only these", icon=":material/filter_alt:", help=KEEP_HELP)
        attend = st.button("See where they attend", icon=":material/visibility:", help="Opens the Text screen.")
        if names:
            st.button("Select none", icon=":material/clear:", on_click=_select, args=("none", ()), help="Forgets them.")
            st.caption(f"Selected: {_listed(names)}", width="content")
    open_heads(names)
    if attend:
        open_heads_in_text(chosen)
    if prune or keep:
        open_prune(mask_text(shape, chosen, keep_only=keep))


def _restore(shape: ModelShape, names: Sequence[str], mask: Mask) -> None:
    """Restores the named heads; what else is pruned stays so."""
    kept = np.array(mask.heads) | ~np.array(parse_mask(" ".join(names), shape).heads)
    carried.set_pruned("induction", Mask.from_arrays(kept, np.array(mask.ffns)).text())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_LISTED]) + " …" * (len(names) > MOST_LISTED)


def mask_text(shape: ModelShape, names: Sequence[str], keep_only: bool) -> str:
    """Returns the text of the mask that prunes the named heads, or all but them."""
    mask = parse_mask(" ".join(names), shape)
    return (Mask.from_arrays(~np.array(mask.heads), np.array(mask.ffns)) if keep_only else mask).text()


def _key(view: str) -> str:
    """Returns a key that changes whenever another view's selection decides."""
    own = st.session_state.get(OWNER) == view
    turn = st.session_state.get(TURN, 0)
    return f"heads {view} {st.session_state.get('heads_owner_turn', 0) if own else turn}"


def _from_chart(view: str, key: str) -> None:
    points = st.session_state[key]["selection"].get("head") or []
    _select(view, tuple(f"L{point['layer']}H{point['head']}" for point in points))


def _from_table(key: str, names: tuple[str, ...]) -> None:
    """Selects or deselects the heads whose rows have changed since this table's previous report.

    A table reports the rows it was drawn with, too, and may do so after another click has replaced it. Such a report
    changes nothing.
    """
    state = st.session_state
    reported = {names[row] for row in state[key]["selection"]["rows"]}
    changed, state[REPORTED][key] = reported ^ state[REPORTED][key], reported
    if changed:
        selected = changed ^ set(state.get(SELECTED, ()))
        _select(TABLE if key == _key(TABLE) else "none", tuple(name for name in names if name in selected))


def _select(view: str, names: tuple[str, ...]) -> None:
    state = st.session_state
    if state.get(OWNER) != view:
        state.heads_owner_turn = state.get(TURN, 0)
    state[OWNER], state[SELECTED], state[TURN] = view, names, state.get(TURN, 0) + 1
