"""The parts of the Mechanisms screen that show what is measured."""

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from engine.shapes import ModelShape
from engine.studies.mechanisms import Mechanisms
from engine.studies.removal import HeadSet
from pages.ui.controls.controls import folded
from pages.ui.controls.heads import open_prune
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.empty import draw_sketch
from pages.ui.figures.sheet import Sheet
from pages.ui.mechanisms import charts, tables
from pages.ui.page.presentation import presenting
from pages.ui.page.streamlit_internals import DeltaGenerator

PRUNE_HELP = "On Prune: accuracy without the top heads of this kind."
ORANGE, HOLLOW = "Orange: clearly less than in the full model.", "Hollow: of one kind alone."
LOST_HELP = (
    "Accuracy with examples minus accuracy without, of the model without the top heads of a kind, with the 95% "
    "interval of its difference from the full model (dashed). Small dots: without as many random heads, one dot for "
    "each draw; the heads of the costliest are named. Below 0, answers are worse with examples than without. More "
    "heads can cost less: intervals overlap, and heads can undo others' work."
)
SHARED_HELP = "Heads in the top 10% of both kinds; Spearman's rank correlation of their scores under the pointer."
BEST_HELP = (
    "The best heads by the score of each kind, induction by prefix matching; the download has ten. Layer: of the top "
    "10%, on average."
)
AWAITED = "Measured as soon as two kinds are scored."
WIDTHS = {"kind": 120, "layer": 100}  # px, so that the heads have room
TITLES = {"kind": "Kind", "layer": "Mean layer", "heads": "Best heads"}


def losses(found: Mechanisms, shape: ModelShape, said: str, sheet: Sheet) -> None:
    """Draws what is lost without each kind of heads next to how many two kinds share; in a folded part, what is lost
    without fewer heads. Buttons open Prune without them."""
    rows = sheet.tables["Sets of heads"] = pd.DataFrame(found.rows(shape))
    shown, words = tables.chart_rows(rows, found.gain), said or f"{len(rows)} sets of heads so far"
    (largest, picture), *fewer = charts.left(shown, found.gain, presenting()).items()
    lost_at, shared_at = st.container(key="wraps lost").columns([8, 5], gap="medium")
    with lost_at:
        st.subheader(largest, help=LOST_HELP)
        st.caption(f"{HOLLOW} {ORANGE}" if found.settings.excludes else ORANGE)
        sheet.draw(largest, picture, f"mechanisms_lost {largest}", words)
    _overlap(found, shape, sheet, shared_at)
    tops = {
        each.kind: HeadSet(each.heads) for each in found.answered if each.kind in found.scores and not each.excludes
    }
    if tops and not presenting():
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.markdown(":material/content_cut: Prune the heads of one kind:", width="content")
            for kind in sorted(tops, key=shown["kind"].tolist().index):
                if st.button(kind.capitalize(), key=f"prune {kind}", help=PRUNE_HELP):
                    open_prune(tops[kind].mask(shape).text())
    for of_share, each in fewer:
        sheet.pictures[of_share] = each
        if not presenting():
            draw = partial(sheet.draw, of_share, each, f"mechanisms_lost {of_share}", words)
            folded(of_share, "mechanisms_fewer", draw, in_address=True)


def scores(found: Mechanisms, shape: ModelShape, sheet: Sheet, awaited: Sequence[str]) -> None:
    """Draws what is known before any heads are removed: the best heads of each kind next to how many two kinds
    share; `awaited` kinds, which are being scored, have a place."""
    kinds_at, shared_at = st.container(key="wraps scores").columns([8, 5], gap="medium")
    with kinds_at:
        kinds(found, shape, sheet, awaited)
    _overlap(found, shape, sheet, shared_at)
    if len(found.scores) < 2 and awaited:
        with shared_at:
            st.subheader("Shared heads", help=SHARED_HELP)
            st.caption(AWAITED)
            draw_sketch("matrix", "shared")


def kinds(found: Mechanisms, shape: ModelShape, sheet: Sheet, awaited: Sequence[str] = ()) -> None:
    """Draws the best heads of each kind."""
    best = tables.kind_rows(found, shape)
    if len(best):
        sheet.tables["Heads of each kind"] = best
    st.subheader("Heads of each kind", help=BEST_HELP)
    shown = tables.shown_kinds(best, awaited)
    columns = {name: st.column_config.Column(title, width=WIDTHS.get(name)) for name, title in TITLES.items()}
    draw_table(shown, columns, "The best heads of each kind")


def _overlap(found: Mechanisms, shape: ModelShape, sheet: Sheet, where: DeltaGenerator) -> None:
    """Draws how many heads two kinds share, if two are scored."""
    shared = tables.overlap_rows(found, shape)
    if len(shared):
        sheet.tables["Overlap of kinds"] = shared
        where.subheader(f"Shared, of the top {shared['n'].iloc[0]}", help=SHARED_HELP)
        says = "How many heads two kinds share"
        sheet.draw("Overlap of kinds", charts.shared(shared), "mechanisms_shared", says, where)
