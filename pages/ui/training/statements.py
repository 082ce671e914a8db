"""Statements of papers on training, and which of them hold over every run measured here."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
import streamlit as st

from engine.training.findings import Twins, findings, twins
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.page.tables import number, typeset
from pages.ui.page.work import Action, Work
from pages.ui.training import charts
from pages.ui.training.runs import RunSource, trajectory_of

ROW_PX = 110
CAPTION = "What Olsson et al. and HAPAX found, and what all measured runs show."
CAPTION_HELP = "The runs of the list above: the included ones and those in your folder. Runs with repeats say so."
TWINS = "Without loss on copies"
TWINS_HELP = (
    "One row per seed: a run in which copies do not count in the loss, and its twin, of the same settings and text, "
    "in which they do."
)
TWIN_TITLES = {"matching": "Best head's prefix matching", "gain_nats": "In-context gain at the end, nats"}


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
    if pairs := twins(known):
        _draw_twins(pairs, sheet)


def _draw_twins(pairs: Sequence[Twins], sheet: Sheet) -> None:
    """Draws the induction heads and the in-context gain of each run without loss on copies, next to its twin's."""
    st.markdown(f"**{TWINS}**, next to the same run with it", help=TWINS_HELP)
    rows = sheet.tables[TWINS] = twin_rows(pairs)
    for at, (field, title) in zip(st.columns(2, gap="medium"), TWIN_TITLES.items(), strict=True):
        values = zip(rows["seed"], rows["copies"], rows[field], strict=True)
        words = f"{title}: " + ", ".join(f"seed {seed} {copies} {number(value)}" for seed, copies, value in values)
        sheet.draw(f"{TWINS}: {title}", charts.twins(rows, field, title), f"training_twins {field}", words, at)


def twin_rows(pairs: Sequence[Twins]) -> pd.DataFrame:
    """Returns two rows per pair, by seed: the run without loss on copies and the one with it, each with the best prefix
    matching of its heads and its in-context gain."""
    seeds = [pair.seed for pair in pairs]
    parts = []
    for pair in sorted(pairs, key=lambda pair: pair.seed):
        name = f"{pair.seed}" if seeds.count(pair.seed) == 1 else f"{pair.seed}, {pair.with_copies.label}"
        about = {"seed": name, "copies": list(charts.COPIES)}
        parts.append(pd.DataFrame(about | {"matching": pair.matching, "gain_nats": pair.gain_nats}))
    return pd.concat(parts, ignore_index=True)
