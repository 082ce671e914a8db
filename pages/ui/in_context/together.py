"""The joint effect of the strongest induction heads on a text: its score and loss without sets of them, next to random
sets."""

import time
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from engine.models.session import Target
from engine.studies.removal import HeadSet, Losses, set_losses
from engine.texts.incontext import MIN_TOKENS, icl_change, icl_score
from pages.ui.figures import head_sets
from pages.ui.figures.sheet import Sheet
from pages.ui.in_context.setting import InContextControls
from pages.ui.page.runtime import budget_s
from pages.ui.page.tables import number
from pages.ui.page.work import Work

ABOUT = "The same texts without 1, 2, 4, … of them at once, in the background, set by set. Finished work is kept."
SHOWS = "You will see the in-context gain without the 1, 2, 4, … best induction heads, next to that without others."
COLUMNS = {"gain": "In-context gain (nats)", "loss": "Mean loss (nats)"}
TITLES = {"gain": "In-context gain without them", "loss": "Loss without them"}


def work_of(x: InContextControls) -> Work[dict[HeadSet, Losses]]:
    """Returns the work that measures it."""
    return Work("incontext together", "Heads together", set_losses(x.target, x.texts), 2)


def rows_of(target: Target, losses: dict[HeadSet, Losses], around: int) -> pd.DataFrame:
    """Returns one row per set: heads, mean loss, score and its paired change with the 95% interval, in nats."""
    full, values = losses.get(HeadSet()), {}
    for each, found in losses.items():
        change = icl_change(full or found, found, around)
        values[each] = {"score": icl_score(found, around).value, "loss": float(np.nanmean(np.concatenate(found)))}
        values[each] |= {"change": change.value, "low": change.low, "high": change.high, "texts": change.n}
    return head_sets.rows(target.shape, values)


def _in_nats(value: float, signed: bool) -> str:
    return f"{number(value, sign=signed)} nats"


def draw(x: InContextControls, around: int, sheet: Sheet, is_open: bool) -> None:
    """Draws the section; measures what is missing at once if it `is_open` and this is short."""
    since_s = time.monotonic()
    if x.target.shape.n_ctx < MIN_TOKENS:
        st.caption(f"It takes a window of {MIN_TOKENS} tokens.")
        return
    work = work_of(x)
    ahead = replace(work, while_seen=True)
    if is_open and x.target.spec.is_demo and budget_s():
        ahead.start()  # seconds, whatever a busy computer forecasts
    if is_open and not work.under_way:
        work.stored()  # the forecast is of what is missing
        ahead.start_ahead(by_size=True)

    def draw_known(losses: dict[HeadSet, Losses]) -> None:
        if not any(each.draw for each in losses):  # other sections may have stored a set: nothing to compare it with
            return
        sheet.tables["Heads together"] = frame = rows_of(x.target, losses, around)
        wraps = st.container(key="wraps together")  # in a narrow window
        for (column, title), at in zip(COLUMNS.items(), wraps.columns(2, gap="large"), strict=True):
            shown = head_sets.by_size(frame.assign(gain=-frame["score"]), column)
            words = head_sets.in_words(shown, partial(_in_nats, signed=column == "gain"))
            drawn = head_sets.chart(shown, title, ".2~f")
            at.markdown(f"**{TITLES[column]}**  \n{words}", help=head_sets.HELP)
            sheet.draw(TITLES[column], drawn, f"incontext_together {column}", words, at)

    head_sets.draw_sets(x.target.shape, work, SHOWS, ABOUT, draw_known, since_s)
