"""The passage of the Training screen, tinted by the losses of its tokens."""

from functools import partial

import pandas as pd
import streamlit as st

from engine.training.trajectory import Trajectory
from pages.ui.controls.controls import one_listed
from pages.ui.figures.sheet import Sheet
from pages.ui.figures.text_picture import text_picture
from pages.ui.page.tables import visible
from pages.ui.training.choosing import RunChoice, offer_text
from pages.ui.training.tint import FULL_NATS, draw_tint

FIRST_PASSAGE = "Privet Drive, twice"
ABOUT = "Each token, tinted by its loss at the slider's moment."


def passage(choice: RunChoice, at: float, sheet: Sheet) -> None:
    """Draws a passage as one of the runs reads it."""
    readers = {name: run for name, run in zip(choice.names, choice.runs, strict=True) if run.passages}
    if not readers:
        offer_text("Show two runs that read text")
        return
    st.caption(ABOUT)
    text_at, run_at = st.columns(2)
    run = readers[one_listed(run_at, "Read by", list(readers), "training_reader")]
    names = list(run.passages)
    first = names.index(FIRST_PASSAGE) if FIRST_PASSAGE in names else 0
    name = one_listed(text_at, "Text", names, "training_text", index=first)
    draw_tint(run, name)
    sheet.pictures[f"Passage, {run.name}"] = partial(_picture, run, name, at)


def _picture(run: Trajectory, name: str, at: float):
    read, nearest = run.passages[name], int(abs(run.tokens - at).argmin())
    frame = pd.DataFrame({"piece": list(read.pieces), "token": [visible(piece) for piece in read.pieces]})
    tip = "token:N|Token; loss:Q|Loss, nats|.2f"
    return text_picture(frame.assign(loss=read.losses[nearest]), "loss", FULL_NATS, ("loss",), tip)
