"""What pruning a task by the order of another costs: rows, a map, and a sentence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from engine.studies.statements import SMALL_LOSS
from engine.studies.sweeps import SweepRow
from engine.views.colors import GREY, MARK, UNKNOWN
from pages.ui.figures import charts
from pages.ui.page.tables import number, whole_percent

LETTER_PX, AROUND_PX = 6, 25  # of a name, about; the space around it
ROW_PX, ROWS_PX, NAME_PX = 44, 200, 240  # a row, few rows together, and the longest name
LEVEL_PX, UNDER_LEVEL_PX = 350, 95  # room for names across, which are level if they fit; the space around the rows
UNDER_PX, SLANTED_PX = 125, 5  # space around the rows: legend and title, and a letter of a slanted name
CHANGE = "Points lost against the task's own ranking"


def transfer_rows(rows: Sequence[SweepRow], own: Sequence[SweepRow]) -> pd.DataFrame:
    """Returns one row per judged task and task whose order pruned it: task, source, acc, lost (points against its own
    order's accuracy at the same level), and whether the two 95% intervals are apart: clear."""
    by_own = {(row.point.task, row.point.heads_permille): row for row in own}
    found = []
    for row in rows:
        source = row.point.of or {"aggregate": "all tasks", "others": "all others"}.get(row.point.by, row.point.by)
        task, mine = row.point.task, by_own.get((row.point.task, row.point.heads_permille))
        lost = math.nan if mine is None else 100 * (mine.acc - row.acc)
        is_clear = mine is not None and (row.high < mine.low or mine.high < row.low)
        found.append((task.name, task.shots, source, row.acc, lost, source == task.name, is_clear))
    return pd.DataFrame(found, columns=["task", "shots", "source", "acc", "lost", "own", "clear"])


def transfer_map(frame: pd.DataFrame, selected: Sequence[str] = ()) -> charts.Picture:
    """Returns tasks judged x task of the order, but for each task's own; a cell has the points lost (negative: gained)
    against that. A clicked cell is the selection `order`, and the one `selected`, (task, source), has a ring."""
    names = tuple(dict.fromkeys(frame["task"]))
    others = tuple(source for source in dict.fromkeys(frame["source"]) if source not in names)
    change = [
        ("0" if abs(lost) < 0.5 else number(lost, 0)) + "*" * bool(is_clear)
        for lost, is_clear in zip(frame["lost"], frame["clear"], strict=True)
    ]
    cells = frame.assign(change=change)
    cells["selected"] = [two == tuple(selected) for two in zip(frame["task"], frame["source"], strict=True)]
    return charts.picture(_transfer_map(names, (*names, *others)), transfer=cells[~cells["own"]])


@charts.kept
def _transfer_map(names: tuple[str, ...], sources: tuple[str, ...]) -> charts.Template:
    every: dict[str, Any] = {"labelOverlap": False, "labelFlush": False, "labelLimit": NAME_PX}
    longest = max(map(len, sources))
    is_level = len(sources) * (AROUND_PX + LETTER_PX * longest) < LEVEL_PX
    angle, under_px = (0, UNDER_LEVEL_PX) if is_level else (-45, UNDER_PX + SLANTED_PX * longest)
    more = "datum.value ? (datum.value < 0 ? '≤ −30' : '≥ 30') : '0'"
    look: dict[str, Any] = {"orient": "top", "direction": "horizontal", "titleOrient": "top", "titleLimit": 600}
    legend = alt.Legend(values=[-30, 0, 30], labelExpr=more, gradientLength=200, **look)
    base = charts.named_chart("transfer").encode(
        x=alt.X(
            "source:N",
            title="Pruned by the ranking of",
            scale=alt.Scale(domain=list(sources)),
            axis=alt.Axis(labelAngle=angle, **every),
        ),
        y=alt.Y("task:N", title="Judged on", scale=alt.Scale(domain=list(names)), axis=alt.Axis(**every)),
    )
    tooltip = charts.tips("task:N|Judged on; source:N|Ranking of; acc:Q|Questions right|.1%", f"change:N|{CHANGE}")
    is_small, cursor = f"abs(datum.lost) < {SMALL_LOSS}", "pointer"
    scale = charts.around_zero(30, clamp=True)  # worse is orange, as on other screens
    colour = alt.Color("lost:Q", title=CHANGE, scale=scale, legend=legend)
    rect = base.mark_rect(stroke=GREY, strokeOpacity=0.4, cursor=cursor)
    rect = rect.encode(color=alt.condition(is_small, alt.value(UNKNOWN), colour), tooltip=tooltip)
    clicked = alt.selection_point(name="order", fields=["task", "source"], empty=False)
    numbers = [
        *charts.on_cells(base.transform_filter(f"!({is_small})"), 11, "lost", "change:N", cursor=cursor),
        charts.written(base.transform_filter(is_small), 11, cursor=cursor).encode(text="change:N"),
    ]
    ring = base.transform_filter("datum.selected").mark_rect(filled=False, stroke=MARK, strokeWidth=2.5)
    return charts.template(max(ROWS_PX, ROW_PX * len(names)) + under_px, rect.add_params(clicked), *numbers, ring)


@dataclass(frozen=True)
class WorstTransfer:
    """The largest loss of a task by the order of another."""

    task: str
    lost: float  # points
    source: str  # the task by whose order it is lost
    is_clear: bool  # the 95% interval of its accuracy is apart from that by its own order


def worst_transfer(frame: pd.DataFrame) -> WorstTransfer | None:
    """Returns the largest loss of these rows; None if none is as large as `SMALL_LOSS`."""
    others = frame[~frame["own"] & (frame["source"] != "all tasks")].dropna(subset=["lost"])
    if others.empty or others["lost"].max() < SMALL_LOSS:
        return None
    worst = others.nlargest(1, "lost").iloc[0]
    return WorstTransfer(worst["task"], worst["lost"], worst["source"], bool(worst["clear"]))


def transfer_in_words(frame: pd.DataFrame, level: float) -> str:
    """Returns whether tasks need the same heads: the largest loss by the order of another task."""
    at, worst = f"at {whole_percent(level)} of heads pruned", worst_transfer(frame)
    if worst is None:
        return f"**These tasks could share one ranking**: {at}, none loses {SMALL_LOSS} points by that of another."
    said = f"{at}, {worst.task} loses **{number(worst.lost, 0)} points** by the ranking of {worst.source}."
    return f"**Not all tasks need the same heads**: {said}" if worst.is_clear else f"{said[0].upper()}{said[1:]}"
