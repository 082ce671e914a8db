"""A head's pattern as a picture: DataFrame in, Altair chart out."""

import altair as alt
import pandas as pd

from pages.ui.shared.charts import named_chart, with_data


def pattern_map(frame: pd.DataFrame) -> alt.LayerChart:
    """Destinations x sources of `attention_frames.map_cells`, coloured by attention from 0 to 1."""
    last = float(frame["source_until"].max())
    scale = alt.Scale(domain=[float(frame["source"].min()), last], nice=False)
    cells = named_chart("cells").mark_rect().encode(
        x=alt.X("source:Q", title="Looks at token", scale=scale,
                axis=alt.Axis(orient="top", grid=False, tickMinStep=1)),
        x2="source_until:Q",
        y=alt.Y("destination:Q", title="From token", scale=alt.Scale(**scale.to_dict() | {"reverse": True}),
                axis=alt.Axis(grid=False, tickMinStep=1)),
        y2="destination_until:Q",
        color=alt.Color("attention:Q", title="Attention", scale=alt.Scale(domain=[0, 1]),
                        legend=alt.Legend(tickCount=3)),
        tooltip=[alt.Tooltip("from:N", title="from"), alt.Tooltip("to:N", title="looks at"),
                 alt.Tooltip("attention:Q", title="Attention", format=".3f")],
    )  # fmt: skip
    return with_data(alt.layer(cells).properties(height=420), cells=frame)
