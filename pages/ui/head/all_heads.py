"""All heads by any two scores, with a third as color: a click opens a head, a box prunes the heads in it."""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from engine.heads.induction import SCORES, VARIANTS
from engine.importance.rankings import CRITERIA
from engine.studies.one_head import TITLES as PART_TITLES
from engine.views.corpus import SCORE_TITLES
from pages.ui.controls.controls import one_listed
from pages.ui.controls.heads import open_prune
from pages.ui.figures.induction_scores import TITLES
from pages.ui.figures.sheet import Sheet
from pages.ui.head import charts, in_corpus
from pages.ui.head.asking import go_to
from pages.ui.head.measuring import Known
from pages.ui.page.address import current_value
from pages.ui.page.presentation import presenting

TITLE, PICTURE, LAYER = "All heads", "All heads by two scores", "Layer"
ACROSS, UP, COLOR, BOXED = "head_across", "head_up", "head_color", "heads boxed"
SCORE_HELP = "All scores that are stored: induction scores, kinds of heads, importance for the tasks, and the corpus."
COLOR_HELP = "The layer, or a third score: gray is lowest, orange highest."
PRUNE_HELP = "Opens the Prune screen without them: how many questions does the model still answer?"
MOST_NAMED = 8


def section(known: Known, sheet: Sheet) -> None:
    """Draws the section, if its tab is open."""
    if current_value("head_part") != TITLE:
        return
    scores = scores_of(known)
    if len(scores) < 2:
        st.caption("No two scores are stored yet. Measure the induction scores above.")
        return
    across_at, up_at, color_at, _ = st.columns(4)
    x = one_listed(across_at, "Across", [*scores], ACROSS, help=SCORE_HELP)
    y = one_listed(up_at, "Up", [*scores], UP, index=1, help=SCORE_HELP)
    color = one_listed(color_at, "Color", [LAYER, *scores], COLOR, help=COLOR_HELP)
    rows = rows_of(scores, x, y, color, known.asked.name)
    picture = charts.all_heads(rows, x, y, color)
    key = f"heads of {x} {y} {color}"
    words = f"{len(rows):,} heads by {x} and {y}, colored by {color}"
    sheet.tables[PICTURE] = pd.DataFrame({"head": rows["name"]} | {name: each.ravel() for name, each in scores.items()})
    sheet.draw(PICTURE, picture, key, words, on_select=partial(_selected, key, rows), selection_mode=["head", "box"])
    boxed = [name for name in st.session_state.get(BOXED, ()) if name in set(rows["name"])]
    if presenting():
        return
    if not boxed:
        st.caption("Click a head to open it. Drag a box to choose heads.")
        return
    listed = ", ".join(boxed[:MOST_NAMED]) + " …" * (len(boxed) > MOST_NAMED)
    label = f"Prune these {len(boxed)}" if len(boxed) > 1 else f"Prune {boxed[0]}"
    with st.container(horizontal=True, vertical_alignment="center"):
        is_clicked = st.button(label, icon=":material/content_cut:", type="primary", help=PRUNE_HELP)
        st.caption(f"In the box: {listed}", width="content")
    if is_clicked:
        open_prune(" ".join(boxed))


def scores_of(known: Known) -> dict[str, np.ndarray]:
    """Returns every stored score (L, H) of all heads by its name."""
    found = dict[str, np.ndarray]()
    if VARIANTS[0] in known.found.scores:
        scores = known.found.scores[VARIANTS[0]]
        found |= {TITLES[name]: scores.copying_share if name == "copying" else scores.mean[name] for name in SCORES}
    found |= {CRITERIA[name].label: scores for name, scores in known.found.kinds.items()}
    for (what, task), scores in known.found.importance.items():
        found[f"{PART_TITLES[what]}, {task.name}, {task.shots} shots"] = scores.scores
    corpus = in_corpus.stored(known)
    if corpus is not None:
        found |= {f"Corpus: {SCORE_TITLES[name]}": scores for name, scores in corpus.scores.items()}
    return {name: scores for name, scores in found.items() if np.isfinite(scores).any()}


def rows_of(scores: Mapping[str, np.ndarray], x: str, y: str, color: str, name: str) -> pd.DataFrame:
    """Returns one row per head: `x`, `y` and `color`, and whether it is `mine`, the head `name`."""
    layer, head = np.indices(scores[x].shape).reshape(2, -1)
    third = layer if color == LAYER else scores[color].ravel()
    frame = pd.DataFrame({"layer": layer, "head": head, "x": scores[x].ravel(), "y": scores[y].ravel(), "color": third})
    frame["name"] = [f"L{row.layer}H{row.head}" for row in frame.itertuples()]
    return frame.assign(mine=frame["name"] == name)


def _selected(key: str, rows: pd.DataFrame) -> None:
    """Opens the head that was clicked, or keeps those in the box."""
    selection = st.session_state[key]["selection"]
    if points := selection.get("head"):
        go_to(f"L{points[0]['layer']}H{points[0]['head']}")
    box = selection.get("box") or {}
    if {"x", "y"} <= box.keys():
        inside = rows["x"].between(*sorted(box["x"])) & rows["y"].between(*sorted(box["y"]))
        st.session_state[BOXED] = tuple(rows["name"][inside])
    else:
        st.session_state[BOXED] = ()
