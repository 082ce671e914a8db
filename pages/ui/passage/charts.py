"""Loss along a text as bars: takes a DataFrame, returns a picture, on a fixed scale (`pages.ui.passage.tables`)."""

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from pages.ui.figures import charts
from pages.ui.figures.text_picture import text_picture

SIGNS = ["B better", "B worse"]  # blue and orange, the theme's first colors, like the tints of the text
COLUMNS = ["index", "token", "loss_a_nats", "loss_b_nats", "difference_nats"]

TIPS = (
    "index:Q|Token of the text|d",
    "token:N|Token",
    "loss_a_nats:Q|Loss A, nats|.3f",
    "loss_b_nats:Q|Loss B, nats|.3f",
    "difference_nats:Q|B − A, nats|+.3f",
)


def difference_bars(frame: pd.DataFrame, full_nats: float, tokens: range) -> charts.Picture:
    """Returns one bar for each of `tokens`, B - A in nats, cut off at twice the tint's full color, marked by an arrow;
    `frame`: `token_frame`."""
    reach, first, last = 2 * full_nats, tokens.start + 1, tokens.stop
    shown = frame.iloc[tokens.start : tokens.stop].query("difference_nats == difference_nats")  # nan has no bar
    difference = shown["difference_nats"].to_numpy()
    shown = shown.filter(COLUMNS).assign(
        height=difference.clip(-reach, reach),
        to=shown["index"] + 0.9,
        sign=np.where(difference > 0, SIGNS[1], SIGNS[0]),
        beyond=np.sign(difference) * (np.abs(difference) > reach),
    )
    return charts.picture(_difference_bars(full_nats, first, last), tokens=shown)


def tinted_text(
    frame: pd.DataFrame, pieces: Sequence[str], view: str, full_nats: float, tokens: range
) -> charts.Picture:
    """Returns the `tokens` of the text, tinted by `view` (`tables.VIEWS`), as on screen."""
    value = {"A": "loss_a_nats", "B": "loss_b_nats"}.get(view, "difference_nats")
    shown = frame.iloc[tokens.start : tokens.stop].filter(COLUMNS)
    shown = shown.assign(piece=list(pieces[tokens.start : tokens.start + len(shown)]))
    signs = (*SIGNS,) if value == "difference_nats" else (f"loss of {view}",)
    return text_picture(shown, value, full_nats, signs, *TIPS)


@charts.kept
def _difference_bars(full_nats: float, first: int, last: int) -> charts.Template:
    reach = 2 * full_nats
    span, height = alt.Scale(domain=[first, last + 1], nice=False), alt.Scale(domain=[-reach, reach])
    ticks = [-reach, -full_nats, 0, full_nats, reach]
    signed = alt.Axis(values=ticks, labelExpr="(datum.value > 0 ? '+' : '') + datum.label")
    legend = alt.Legend(orient="top", direction="horizontal")
    bars = charts.named_chart("tokens").mark_rect()
    bars = bars.encode(
        x=alt.X("index:Q", title="Token of the text", scale=span, axis=alt.Axis(format="d", grid=False)),
        x2="to:Q",
        y=alt.Y("height:Q", title="B − A, nats", scale=height, axis=signed),
        y2=alt.datum(0),
        color=alt.Color("sign:N", title=None, scale=alt.Scale(domain=SIGNS), legend=legend),
        tooltip=charts.tips(*TIPS),
    )
    arrows = charts.named_chart("tokens").transform_filter("datum.beyond != 0")
    arrows = arrows.transform_calculate(middle="datum.index + 0.45").mark_point(filled=True, size=45, opacity=1)
    arrows = arrows.encode(
        x=alt.X("middle:Q", scale=span),
        y=alt.Y("height:Q", scale=height),
        shape=alt.Shape(
            "beyond:N", scale=alt.Scale(domain=[-1, 1], range=["triangle-down", "triangle-up"]), legend=None
        ),
        color=bars.encoding.color,
        tooltip=bars.encoding.tooltip,
    )
    return charts.template(240, bars, arrows)
