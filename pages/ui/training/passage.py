"""The passage of the Training screen: its tokens tinted by the change in training, and two of them over training."""

from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from engine.views.pictures import Picture
from pages.ui.controls.controls import one_listed, one_of
from pages.ui.figures.sheet import Sheet
from pages.ui.figures.text_picture import text_picture
from pages.ui.page.address import number_field
from pages.ui.training import loss_charts, tables
from pages.ui.training.charts import TokenAxis
from pages.ui.training.runs import DrawnRun
from pages.ui.training.sections import TrainingFrames, row
from pages.ui.training.tint import FULL_NATS, VIEWS, draw_tint

FIRST_PASSAGE = "Privet Drive, twice"
PASSAGE_HELP = (
    "Blue tokens are predicted better, orange ones worse. A token that repeats an earlier continuation gets better in "
    "the window; one that departs from it gets worse."
)
TINT_HELP = (
    "The loss at the end of the window minus that at its start (of the whole run, where it has no window), the same at "
    "the marker, or the loss at the marker itself."
)
TOKEN_HELP = "Counted from 1. Empty: the tokens that the window changes most, for the better and for the worse."


def passage(view: TrainingFrames, sheet: Sheet) -> None:
    """Draws a passage tinted by the change in training, and two of its tokens over training."""
    st.caption("Each token, tinted by the change of its loss in training.", help=PASSAGE_HELP)
    read_by = [run for run in view.runs if run.trajectory.passages]
    if not read_by:
        st.caption("No passage was measured on these runs.")
        return
    text_at, run_at, by_at, a_at, b_at = st.columns([7, 6, 9, 3, 3], vertical_alignment="bottom")
    names = list(dict.fromkeys(name for run in read_by for name in run.trajectory.passages))
    first = names.index(FIRST_PASSAGE) if FIRST_PASSAGE in names else 0
    name = one_listed(text_at, "Text", names, "training_text", index=first, help="A built-in passage.")
    by_name = {run.name: run for run in read_by if name in run.trajectory.passages}
    changed = [each for each, run in by_name.items() if run.window]
    first = list(by_name).index(changed[0]) if changed else 0
    chosen = one_listed(run_at, "Read by", list(by_name), "training_reader", index=first, help="Whose losses tint it.")
    run = by_name[chosen]
    how = one_of(by_at, "Tinted by", VIEWS, "training_tint", TINT_HELP, width="stretch")
    n = len(run.trajectory.passages[name].pieces)
    own = tables.two_that_part(run, name) or [0, min(1, n - 1)]
    places = []
    for letter, at, usual in (("a", a_at, own[0]), ("b", b_at, own[-1])):
        about: dict[str, Any] = {"value": None, "placeholder": str(usual + 1), "help": TOKEN_HELP}
        found = number_field(at, f"Token {letter.upper()}", (1, n), f"training_token_{letter}", **about)
        places.append(usual if found is None else int(found) - 1)
    draw_tint(run, name, how)
    frame = tables.two_tokens(list(by_name.values()), name, list(dict.fromkeys(places)))
    here = replace(view, runs=tuple(by_name.values()))

    def panel(run: DrawnRun, look: TokenAxis) -> Picture:
        return loss_charts.tokens_panel(frame, view.windows, run.label, look)

    row(here, "two tokens", "Loss of two tokens of the passage", panel, sheet)
    change = tables.change(run, name)
    sheet.pictures["Passage, end minus start"] = partial(
        text_picture, change, "change", FULL_NATS["change"], ("predicted better", "predicted worse"),
        "token:N|Token; before:Q|Loss at the start, nats|.2f; after:Q|Loss at the end, nats|.2f")  # fmt: skip
