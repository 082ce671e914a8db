"""The likeliest next tokens as bars: takes a DataFrame, returns a picture, from 0 to 100% (`sections.next_frame`)."""

import altair as alt
import pandas as pd

from pages.ui.figures import charts
from pages.ui.figures.colours import palette

FULL, PRUNED = "full model", "pruned model"
ROW_PX = 20
TICKS, REACH = [0, 0.25, 0.5, 0.75, 1], 1.2  # room for a number after the longest bar


def next_bars(frame: pd.DataFrame, who: str) -> charts.Picture:
    """Returns one bar per token for the model `who`; tokens in the same order for every model: by their largest
    probability."""
    tokens = frame.groupby("token", sort=False)["p"].max().sort_values(ascending=False, kind="stable").index
    return charts.picture(_next_bars(who, tuple(tokens)), tokens=frame[frame["model"].eq(who)])


@charts.kept
def _next_bars(who: str, tokens: tuple[str, ...]) -> charts.Template:
    base = charts.named_chart("tokens").encode(
        y=alt.Y("token:N", title=None, sort=list(tokens), axis=alt.Axis(labelLimit=120, ticks=False)),
        tooltip=charts.tips("token:N|Token; model:N|Model; p:Q|Probability|.2%; rank:Q|Rank"),
    )
    x = alt.X("p:Q", title=f"Probability, {who}", axis=alt.Axis(format="%", values=TICKS, orient="top"))
    colour = alt.Color("model:N", scale=alt.Scale(domain=palette(full=FULL, pruned=PRUNED)), legend=None)
    bars = base.mark_bar(height=0.7 * ROW_PX).encode(x=x.scale(domain=[0, REACH]), color=colour)
    words = charts.written(base, 11, align="left", dx=4).encode(x=x.scale(domain=[0, REACH]), text="said:N")
    return charts.template(ROW_PX * len(tokens) + charts.AXIS_PX, bars, words)
