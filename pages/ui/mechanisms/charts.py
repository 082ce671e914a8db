"""What is lost without each kind of heads as a picture: takes a DataFrame of `pages.ui.mechanisms.tables`."""

import altair as alt
import pandas as pd

from pages.ui.figures import charts
from pages.ui.figures.colours import GREY, MARK

ROW_PX, AROUND_PX = 38, 90
TOOLTIP = charts.tips("row:N|Kind, heads removed", "which:N|Which", "points:N|Points lost",
                      "interval:N|95% interval", "heads:N|Heads")  # fmt: skip


def lost(rows: pd.DataFrame, gain: float) -> charts.Picture:
    """Returns the gain lost without each kind, with its interval, over the range of random sets of as many heads
    (gray); orange where it is more than every random set and clear; hollow without the heads of other kinds. A dashed
    line is at the whole `gain`."""
    return charts.picture(_lost(rows["row"].nunique(), bool(rows["exclusive"].any())), cells=rows.assign(gain=gain))


@charts.kept
def _lost(n_rows: int, excludes: bool) -> charts.Template:
    axis = alt.Axis(title=None, ticks=False, domain=False, grid=False, labelLimit=230)
    base = charts.named_chart("cells").encode(y=alt.Y("row:N", sort=None, axis=axis), tooltip=TOOLTIP)
    x = alt.X("lost:Q", title="Points of the gain from examples that are lost", axis=alt.Axis(tickCount=8))
    color = alt.condition("datum.beyond_random", alt.value(MARK), alt.value(GREY))
    band = (
        base.transform_filter("!datum.exclusive")
        .mark_bar(color=GREY, opacity=0.2, height={"band": 0.9})
        .encode(x="random_low:Q", x2="random_high:Q")
    )
    if excludes:
        base = base.encode(yOffset=alt.YOffset("exclusive:N"))
    rule = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q", color=color)
    full = base.transform_filter("!datum.exclusive").mark_point(size=120, filled=True, opacity=1)
    hollow = base.transform_filter("datum.exclusive").mark_point(size=90, filled=False, strokeWidth=2, opacity=1)
    numbers = charts.written(base, 12, dy=-11).encode(x=x, text="points:N")
    dots = (each.encode(x=x, color=color) for each in (full, hollow))
    whole = charts.named_chart("cells").mark_rule(strokeDash=[5, 4], color=GREY).encode(x="max(gain):Q")
    return charts.template(ROW_PX * n_rows * (1 + excludes) + AROUND_PX, band, whole, rule, *dots, numbers)
