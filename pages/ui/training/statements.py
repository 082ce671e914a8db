"""Statements of papers on training, and which of them hold over every run measured here."""

import hashlib
from collections.abc import Mapping
from functools import partial

import pandas as pd
import streamlit as st

from engine.training.findings import findings
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.page.tables import typeset
from pages.ui.page.work import Action, Work
from pages.ui.training.runs import RunSource, trajectory_of

ROW_PX = 110
CAPTION = "What Olsson et al. and HAPAX found, and what all measured runs show."
CAPTION_HELP = "The runs of the list above: the included ones and those in your folder. Runs with repeats say so."


def statements(sources: Mapping[str, RunSource], sheet: Sheet) -> None:
    """Draws the statements as a table."""
    st.caption(CAPTION, help=CAPTION_HELP)
    known = [each for source in sources.values() if (each := trajectory_of(source)) is not None]
    of = hashlib.sha256(b"".join(each.token_losses.tobytes() + each.icl.tobytes() for each in known)).hexdigest()
    action = Action.of(of, partial(findings, known))  # scikit-learn takes a second to import
    found = Work("training statements", "Statements of the papers", action, 2).awaited()
    if found is None:
        return
    frame = pd.DataFrame(
        [(typeset(each.text), each.verdict, typeset(each.ours)) for each in found], columns=["text", "verdict", "ours"]
    )
    config = {
        "text": st.column_config.TextColumn("Statement", width="medium"),
        "verdict": st.column_config.TextColumn("Here", width="small"),
        "ours": st.column_config.TextColumn("These runs", width="large"),
    }
    about = "The statements of the papers, and which of them hold for these runs"
    draw_table(frame, config, about, row_height=ROW_PX, height="content")
    sheet.tables["Statements"] = frame
