"""The sections of the Sweeps screen: rows measured so far -> charts, sentences and tables, drawn."""

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
import streamlit as st

from engine.questions.requests import TaskSpec
from engine.studies.statements import SMALL_LOSS, break_points
from engine.studies.study import OUT_OF_DISTRIBUTION
from engine.studies.surveys import in_words
from engine.studies.sweeps import SweepRow
from pages.ui.figures.break_points import POWER_HELP
from pages.ui.figures.drawing import grey_ink
from pages.ui.figures.sheet import Sheet
from pages.ui.figures.transfer import transfer_in_words, transfer_map, transfer_rows
from pages.ui.page.defaults import NOUNS, Axis
from pages.ui.page.presentation import presenting
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import greyed, number, percent
from pages.ui.sweeps import charts, tables

Known = tuple[Mapping[TaskSpec, float], str]  # published accuracies, and a sentence about them
TOGETHER = "Of the measured levels, tested together; one in between can lose more."
SLIDE_PX = 480  # of the curves on a slide, which they fill
MOST_ROWS = 10  # of the table, without scrolling
PLOTS_PX = 820  # of all charts side by side, at 1280 px
NOTHING = "Nothing is measured here yet."
SHOWS = {  # once a section is measured
    "heads": "accuracy as heads are pruned, the least important first, against random orders",
    "ffns": "accuracy as FFNs are pruned, the least important first, against random orders",
    "both": "accuracy at every pair of levels of heads and FFNs",
    "transfer": "accuracy of each task when heads are pruned by the ranking of another",
    "outside": "accuracy of tasks that the ranking was not made from",
    "rescored": "accuracy when importance is measured again before each step",
}
NO_OUTSIDE = f"Choose a task that is not in the aggregate: {', '.join(OUT_OF_DISTRIBUTION)}."


def finding(section: str, rows: Sequence[SweepRow], permille: int) -> str:
    """Returns the finding of a section in a sentence or two; "" without rows."""
    if not rows:
        return ""
    if section in ("heads", "ffns"):
        own, random = _by_score(rows), _of_order(rows, "random")
        return tables.curves_finding(tables.curves(own, random, section), own, section)
    if section == "both":
        return tables.grid_in_words(tables.grid(rows))
    if section == "transfer":
        return transfer_in_words(_transfer_frame(rows), permille / 1000)
    return tables.lines_in_words(tables.lines(rows))


def draw_section(
    section: str, rows: Sequence[SweepRow], front: TaskSpec, permille: int, published: Known, sheet: Sheet
) -> None:
    """Draws a section."""
    if not rows:
        st.caption(NO_OUTSIDE if section == "outside" else NOTHING)
        return
    sheet.tables["Accuracies"] = tables.table(rows)
    if section in ("heads", "ffns"):
        _curves(section, rows, front, published, sheet)
    elif section == "both":
        _grid(rows, sheet)
    elif section == "transfer":
        _transfer(rows, permille, sheet)
    else:
        _lines(section, rows, front, sheet)


def _curves(axis: Axis, rows: Sequence[SweepRow], front: TaskSpec, published: Known, sheet: Sheet) -> None:
    own, random = _by_score(rows), _of_order(rows, "random")
    frame = tables.curves(own, random, axis, front.name)
    each, table = tables.by_shots(frame), tables.break_table(break_points(own, axis), published[0])
    _caption_of_curves(frame, any(tables.has_mean(mine) for _, mine in each))
    widths = [2] * (len(each) - 1) + [3]  # lines are named in the last chart
    for (shots, mine), at, width in zip(each, _side_by_side(widths), widths, strict=True):
        title = f"{axis}, {_shots(shots)}"
        with at:
            st.subheader(_shots(shots))
            words = tables.curves_in_words(mine, NOUNS[axis])
            is_known = mine["kind"].eq("mean").sum() >= tables.N_LEVELS
            holds = tables.holds(table, shots) if is_known and not tables.too_few(table, shots) else 0.0
            names_in_px = PLOTS_PX * width // sum(widths) if width == widths[-1] else 0
            drawn = charts.curves(mine, axis, names_in_px, holds, SLIDE_PX if presenting() else charts.HEIGHT_PX)
            sheet.draw(title, drawn, f"sweep {title}", words)
    sheet.tables["Break points"] = table
    if presenting():
        return  # the curves fill the slide
    st.subheader("How much can be pruned", help=BREAK_HELP)
    st.caption(" ".join(filter(None, [tables.power_of(table), TOGETHER, published[1]])), help=POWER_HELP)
    shown = greyed(tables.break_words(table), table["reading"].ne(""), grey_ink(), **BREAK_FORMATS)
    height, words = 420 if len(table) > MOST_ROWS else "content", "Break points by task and shot count"
    st.dataframe(shown, hide_index=True, column_config=BREAK_TITLES, height=height, alt=words)


def _caption_of_curves(frame: pd.DataFrame, has_mean: bool) -> None:
    """Draws what the lines and bars of the charts are, of those that are drawn."""
    has_random = "random" in set(frame["kind"])
    helps = [RANDOM_HELP * has_random, BARS_HELP, MEAN_HELP * has_mean, CHANCE_HELP]
    st.caption(CURVES + RANDOM * has_random, help=" ".join(filter(None, helps)))


def _grid(rows: Sequence[SweepRow], sheet: Sheet) -> None:
    cells = sheet.tables["Means over tasks"] = tables.grid(rows)
    each = tables.by_shots(cells)
    for (shots, mine), at in zip(each, _side_by_side(max(1, len(each))), strict=False):
        title = f"heads and FFNs, {_shots(shots)}"
        edges = tables.border(mine)
        drawn = charts.grid_map(tables.spread(mine), edges)
        with at:
            st.subheader(_shots(shots), help=GRID_HELP)
            sheet.draw(title, drawn, f"sweep {title}", tables.grid_in_words(mine))


def _transfer(rows: Sequence[SweepRow], permille: int, sheet: Sheet) -> None:
    frame = _transfer_frame(rows)
    if frame.empty:
        st.caption(NOTHING)
        return
    words = transfer_in_words(frame, permille / 1000)
    sheet.draw("Transfer", transfer_map(frame), "sweep transfer", words)
    sheet.tables["Transfer"] = frame


def _transfer_frame(rows: Sequence[SweepRow]) -> pd.DataFrame:
    return transfer_rows([row for row in rows if row.point.by != "own"], _of_order(rows, "own"))


def _by_score(rows: Sequence[SweepRow]) -> list[SweepRow]:
    return [row for row in rows if row.point.by != "random"]


def _of_order(rows: Sequence[SweepRow], order: str) -> list[SweepRow]:
    return [row for row in rows if row.point.by == order]


def _lines(section: str, rows: Sequence[SweepRow], front: TaskSpec, sheet: Sheet) -> None:
    frame = sheet.tables["Curves"] = tables.lines(rows)
    each = tables.by_shots(frame)
    for (shots, mine), at in zip(each, _side_by_side(len(each)), strict=True):
        title = f"{section}, {_shots(shots)}"
        with at:
            st.subheader(_shots(shots) if section == "outside" else in_words(front), help=LINES_HELP[section])
            sheet.draw(title, charts.lines(mine), f"sweep {title}", tables.lines_in_words(mine))


CURVES, RANDOM = "Colors: each task by its own scores.", " Gray: three random orders."
RANDOM_HELP = "Gray: the mean of tasks in each random order, lowest to highest."
BARS_HELP, MEAN_HELP = "Bars: 95% intervals of the highlighted task.", "Dashed: the mean of tasks."
CHANCE_HELP = "Dotted: guessing on the highlighted task, if it has choices."
GRID_HELP = f"Mean over tasks. The line bounds the cells that lose less than {SMALL_LOSS:g} points."
BREAK_HELP = (
    "The first level that is significantly below the full model (exact McNemar on the same questions, 5% for all "
    "levels together by Holm's correction), the measured level before it, and the cliff: the two neighboring levels "
    "between which accuracy falls most. At chance: the 95% interval of the full model contains the accuracy of "
    "guessing, so there is nothing to lose. Not measured: it takes two levels. "
    "…: not every level is measured yet."
)
_RIGHT = partial(st.column_config.TextColumn, alignment="right")
BREAK_TITLES = {
    "task": "Task",
    "shots": "Shots",
    "full_acc": "Full model",
    "published": "Published",
    "chance": "Chance",
    "no_loss_up_to": _RIGHT("No detectable loss up to"),
    "first_detectable_loss": _RIGHT("First detectable loss at"),
    "cliff": _RIGHT("Cliff (steepest step)"),
    "n": "Questions",
    "detects_points": "Detect a loss from",
}
BREAK_FORMATS = {
    "full_acc": percent,
    "published": percent,
    "chance": lambda chance: "none" if chance == 0 else percent(chance),
    "detects_points": lambda points: f"{number(points, 0)} points",
}
LINES_HELP = {
    "outside": "These tasks are not in the aggregate. They are pruned by the ranking of the others.",
    "rescored": "The importance of the remaining heads is measured again before each step.",
}


def _shots(count: int) -> str:
    return f"{count} example{'' if count == 1 else 's'} in the prompt"


def _side_by_side(widths: int | Sequence[int]) -> list[DeltaGenerator]:
    """Returns containers for charts, as many or of these relative widths, which wrap in a narrow window
    (screens.css)."""
    return st.container(key="wraps charts").columns(widths, gap="medium")
