"""Loss along a text as bars: DataFrame in, Altair chart out, on a fixed scale (`pages.ui.passage.tables`)."""

import altair as alt
import numpy as np
import pandas as pd

from pages.ui.shared.charts import named_chart, with_data

SIGNS = ["B better", "B worse"]


COLUMNS = ["index", "token", "loss_a_nats", "loss_b_nats", "difference_nats"]


def difference_bars(frame: pd.DataFrame, full_nats: float, tokens: range) -> alt.LayerChart:
    """One bar for each of `tokens`, B - A in nats, cut off at twice the tint's full colour; `frame`: `token_frame`."""
    reach, first, last = 2 * full_nats, tokens.start + 1, tokens.stop
    shown = frame.iloc[tokens.start : tokens.stop].query("difference_nats == difference_nats")  # nan has no bar
    difference = shown["difference_nats"].to_numpy()
    shown = shown.filter(COLUMNS).assign(
        height=difference.clip(-reach, reach),
        to=shown["index"] + 0.9,
        sign=np.where(difference > 0, SIGNS[1], SIGNS[0]),
    )
    bars = named_chart("tokens").mark_rect().encode(
        x=alt.X("index:Q", title="Token of the text", scale=alt.Scale(domain=[first, last + 1], nice=False),
                axis=alt.Axis(format="d", grid=False)),
        x2="to:Q",
        y=alt.Y("height:Q", title="B − A, nats", scale=alt.Scale(domain=[-reach, reach]),
                axis=alt.Axis(values=[-reach, -full_nats, 0, full_nats, reach],
                              labelExpr="(datum.value > 0 ? '+' : '') + datum.label")),
        y2=alt.datum(0),
        color=alt.Color("sign:N", title=None, scale=alt.Scale(domain=SIGNS, range=["#2b7bba", "#d6453d"]),
                        legend=alt.Legend(orient="top", direction="horizontal")),
        tooltip=[
            alt.Tooltip("index:Q", title="Token of the text", format="d"), alt.Tooltip("token:N", title="Token"),
            alt.Tooltip("loss_a_nats:Q", title="Loss A, nats", format=".3f"),
            alt.Tooltip("loss_b_nats:Q", title="Loss B, nats", format=".3f"),
            alt.Tooltip("difference_nats:Q", title="B − A, nats", format="+.3f"),
        ],
    )  # fmt: skip
    chart = alt.LayerChart(layer=[bars]).properties(height=240)
    return with_data(chart, tokens=shown)
