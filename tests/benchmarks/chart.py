"""The comparisons as one chart: a group for each pair of ways, a bar for the mean ratio and a line for its spread."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from engine.views import colors, pictures
from engine.views.pictures import Picture
from pages.ui.figures import charts

ROW_PX = 17
TITLE = "What Headroom saves against the usual way"
AXIS = "times less time, or less memory (1 = the same)"
MARKS = "bar: geometric mean, line: minimum to maximum, tick: what was asked for"


def write(runs: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Writes `speed.svg`."""
    (folder / "speed.svg").write_bytes(pictures.to_svg(speed(frame(runs)), TITLE))


def frame(runs: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """One row a comparison: family, name, low, mean, high, bar; and one for each family's heading."""
    rows, family = [], None
    comparisons = [each for run in runs.values() for each in run["comparisons"]]
    families = list(dict.fromkeys(each["family"] for each in comparisons))
    for each in sorted(comparisons, key=lambda each: families.index(each["family"])):
        if each["family"] != family:
            family = each["family"]
            rows.append({"row": len(rows), "heading": family})
        ratio = each["ratio"]
        rows.append({"row": len(rows), "family": family, "name": each["name"], "low": ratio["min"],
                     "mean": ratio["mean"], "high": ratio["max"], "bar": each["bar"],
                     "text": f"{ratio['mean']:.1f} ×"})  # fmt: skip
    return pd.DataFrame(rows)


def speed(frame: pd.DataFrame) -> Picture:
    """Horizontal bars from 1 on a logarithmic axis; a tick where a ratio was asked for."""
    top = 2 * max(10.0, float(frame["high"].max()))
    low = min(0.5, 0.8 * float(frame["low"].min()))
    ticks = [value for value in (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500) if low <= value <= top]
    scale = alt.Scale(type="log", domain=[low, top], nice=False)
    axis = alt.Axis(values=ticks, format="~g", orient="top", domain=False, ticks=False)
    x = alt.X("mean:Q", title=[AXIS, MARKS], scale=scale, axis=axis)
    y = alt.Y("row:O", title=None, axis=None, scale=alt.Scale(paddingInner=0.25))
    base = charts.named_chart("rows").encode(y=y)
    measured = base.transform_filter("isValid(datum.mean)")
    color = alt.Color("family:N", legend=None, sort=None)
    names = measured.encode(x=alt.value(-8), text="name:N")
    headings = base.transform_filter("isValid(datum.heading)").encode(x=alt.value(-8), text="heading:N")
    layers = [
        measured.mark_bar(opacity=0.75).encode(x=x, x2=alt.datum(1.0), color=color),
        measured.mark_rule(strokeWidth=1.5, color=colors.DARK).encode(x=alt.X("low:Q"), x2="high:Q"),
        base.transform_filter("isValid(datum.bar)").mark_tick(thickness=2.5, color=colors.DARK, height=ROW_PX - 3)
        .encode(x=alt.X("bar:Q")),
        alt.Chart(alt.NamedData("one")).mark_rule(strokeWidth=1.5, color=colors.DARK).encode(x=alt.X("at:Q")),
        charts.written(measured.encode(x=alt.X("high:Q"), text="text:N"), 11, align="left", dx=5),
        charts.written(names, 11, align="right"),
        charts.written(headings, 12, align="right", fontWeight="bold"),
    ]  # fmt: skip
    drawn = charts.template(ROW_PX * len(frame), *layers)
    return charts.picture(drawn, rows=frame, one=pd.DataFrame({"at": [1.0]}))
