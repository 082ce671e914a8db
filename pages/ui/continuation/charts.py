"""The likeliest next tokens as bars: takes a DataFrame, returns a picture (`sections.next_frame`)."""

import json

import altair as alt
import pandas as pd

from engine.views.colors import palette
from pages.ui.figures import charts

FULL, PRUNED = "full model", "pruned model"
ROW_PX = 20
ENDS = (0.04, 0.08, 0.2, 0.4, 0.6, 0.8, 1)  # of the axis: each quarter is a whole percentage
REACH = 1.2  # of the end: room for a number after the longest bar
ORDER = {FULL: "likeliest first", PRUNED: "in the same order, bold: likeliest"}


def next_bars(frame: pd.DataFrame, who: str) -> charts.Picture:
    """Returns one bar per token for the model `who`, in the same order and on the same scale for every model;
    the label of its likeliest token is bold."""
    end = next(end for end in ENDS if end >= min(1.0, frame["p"].max()))
    own = frame[frame["model"].eq(who)]
    best = own.nsmallest(1, "rank")["token"].iloc[0]
    return charts.picture(_next_bars(who, token_order(frame), end, best), tokens=own)


def token_order(frame: pd.DataFrame) -> tuple[str, ...]:
    """Returns the tokens by the full model's probability, falling."""
    return tuple(frame[frame["model"].eq(FULL)].sort_values("p", ascending=False, kind="stable")["token"])


@charts.kept
def _next_bars(who: str, tokens: tuple[str, ...], end: float, best: str) -> charts.Template:
    weight = alt.condition(f"datum.value === {json.dumps(best)}", alt.value("bold"), alt.value("normal"))
    axis = alt.Axis(labelLimit=120, ticks=False, labelFontWeight=weight)
    base = charts.named_chart("tokens").encode(
        y=alt.Y("token:N", title=None, sort=list(tokens), axis=axis),
        tooltip=charts.tips("token:N|Token; model:N|Model; p:Q|Probability|.2%; rank:Q|Rank"),
    )
    ticks = [end * quarter / 4 for quarter in range(5)]
    title = f"Probability, {who}, {ORDER[who]}"
    scale = alt.Scale(domain=[0, REACH * end], nice=False)
    x = alt.X("p:Q", title=title, scale=scale, axis=alt.Axis(format=".0%", values=ticks, orient="top"))
    colour = alt.Color("model:N", scale=alt.Scale(domain=palette(full=FULL, pruned=PRUNED)), legend=None)
    bars = base.mark_bar(height=0.7 * ROW_PX).encode(x=x, color=colour)
    words = charts.written(base, 11, align="left", dx=4).encode(x=x, text="said:N")
    return charts.template(ROW_PX * len(tokens) + charts.AXIS_PX, bars, words)
