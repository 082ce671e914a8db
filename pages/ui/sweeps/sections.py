"""The sections of the Sweeps screen: rows measured so far -> charts, sentences and tables, drawn."""

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd
import streamlit as st

from engine.questions.requests import TaskSpec
from engine.studies.break_points import break_points
from engine.studies.study import SMALL_LOSS
from engine.studies.surveys import in_words
from engine.studies.sweeps import Row
from pages.ui.sweeps import charts as sweep_charts
from pages.ui.sweeps import tables as sweep_frames

NOTHING = "Nothing is measured here yet."


def draw_section(
    section: str, rows: Sequence[Row], front: TaskSpec, permille: int
) -> tuple[Mapping[str, alt.LayerChart], Mapping[str, pd.DataFrame]]:
    """Draws a section; gives its charts and tables by name, for the downloads."""
    if not rows:
        st.caption(NOTHING)
        return {}, {}
    draw = {"heads": _curves, "ffns": _curves, "both": _grid, "transfer": _transfer}.get(section, _lines)
    pictures, tables = draw(section, rows, front, permille)
    return pictures, {"Accuracies": sweep_frames.table(rows), **tables}


def _curves(section: str, rows: Sequence[Row], front: TaskSpec, permille: int):
    own = [row for row in rows if row.point.by == "own"]
    random = [row for row in rows if row.point.by == "random"]
    frame, pictures = sweep_frames.curves(own, random, section, front.name), {}
    noun = {"heads": "heads", "ffns": "FFNs"}[section]
    st.markdown(sweep_frames.curves_in_words(frame, noun))
    counts = sorted(frame["shots"].unique())
    for shots, at in zip(counts, st.columns(len(counts), gap="medium"), strict=True):
        mine = frame[frame["shots"] == shots]
        title = f"{section}, {_shots(shots)}"
        pictures[title] = sweep_charts.curves(mine, section)
        with at:
            st.subheader(
                _shots(shots), help="Thin: one task each. The band: three random rankings, each a mean of tasks."
            )
            words = sweep_frames.curves_in_words(mine, noun)
            st.altair_chart(pictures[title], key=f"sweep {title}", alt=words)
    table = sweep_frames.break_table(break_points(own, section))
    st.subheader("How much can go", help="The largest level that is not significantly below the full model (exact "
                 "McNemar, 5 %, same questions), the first that is, and where the curve bends down most.")  # fmt: skip
    percent = {name: st.column_config.NumberColumn(title, format="percent") for name, title in BREAK_TITLES.items()}
    st.dataframe(table, hide_index=True, column_config={"task": "Task", "shots": "Solved examples", **percent},
                 height=min(420, 40 + 35 * len(table)), alt="Break points by task and shot count")  # fmt: skip
    return pictures, {"Break points": table}


def _grid(section: str, rows: Sequence[Row], front: TaskSpec, permille: int):
    cells, pictures = sweep_frames.grid(rows), {}
    st.markdown(sweep_frames.grid_in_words(cells, SMALL_LOSS))
    counts = sorted(cells["shots"].unique())
    for shots, at in zip(counts, st.columns(max(1, len(counts)), gap="medium"), strict=False):
        mine = cells[cells["shots"] == shots]
        title = f"heads and FFNs, {_shots(shots)}"
        edges = sweep_frames.border(mine, SMALL_LOSS)
        pictures[title] = sweep_charts.grid_map(sweep_frames.spread(mine), edges, SMALL_LOSS)
        with at:
            st.subheader(
                _shots(shots), help=f"Mean over tasks. The line bounds what loses less than {SMALL_LOSS:g} points."
            )
            st.altair_chart(pictures[title], key=f"sweep {title}", alt=sweep_frames.grid_in_words(mine, SMALL_LOSS))
    return pictures, {"Means over tasks": cells}


def _transfer(section: str, rows: Sequence[Row], front: TaskSpec, permille: int):
    own = [row for row in rows if row.point.by == "own"]
    frame = sweep_frames.transfer([row for row in rows if row.point.by != "own"], own)
    if frame.empty:
        st.caption(NOTHING)
        return {}, {}
    words = sweep_frames.transfer_in_words(frame, permille / 1000)
    st.markdown(words)
    chart = sweep_charts.transfer_map(frame)
    st.altair_chart(chart, key="sweep transfer", alt=words)
    return {"Transfer": chart}, {"Transfer": frame}


def _lines(section: str, rows: Sequence[Row], front: TaskSpec, permille: int):
    frame, pictures = sweep_frames.lines(rows), {}
    st.markdown(sweep_frames.lines_in_words(frame))
    counts = sorted(frame["shots"].unique())
    for shots, at in zip(counts, st.columns(len(counts), gap="medium"), strict=True):
        title = f"{section}, {_shots(shots)}"
        mine = frame[frame["shots"] == shots]
        pictures[title] = sweep_charts.lines(mine)
        with at:
            st.subheader(_shots(shots) if section == "outside" else in_words(front), help=LINES_HELP[section])
            st.altair_chart(pictures[title], key=f"sweep {title}", alt=sweep_frames.lines_in_words(mine))
    return pictures, {"Curves": frame}


BREAK_TITLES = {
    "full_acc": "Full model", "chance": "Chance", "level": "No clear loss up to", "first_loss": "First clear loss at",
    "inflection": "Bends down most at",
}  # fmt: skip
LINES_HELP = {
    "outside": "These tasks are no part of the aggregate. Theirs is the ranking of the others.",
    "rescored": "Importance of the heads that are left is measured anew before each step.",
}


def _shots(count: int) -> str:
    return f"{count} solved example{'' if count == 1 else 's'}"
