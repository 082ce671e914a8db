"""A head's pattern as a picture: DataFrame in, picture out."""

import altair as alt
import pandas as pd

from pages.ui.shared import charts


def pattern_map(frame: pd.DataFrame) -> charts.Picture:
    """Destinations x sources of `tables.map_cells`, coloured by attention from 0 to 1."""
    return charts.picture(_pattern_map(float(frame["source"].min()), float(frame["source_until"].max())), cells=frame)


@charts.kept
def _pattern_map(first: float, last: float) -> charts.Template:
    across, axis = {"domain": [first, last], "nice": False}, {"grid": False, "tickMinStep": 1}
    x = alt.X("source:Q", title="Looks at token", scale=alt.Scale(**across), axis=alt.Axis(orient="top", **axis))
    down = alt.Scale(**across, reverse=True)
    y = alt.Y("destination:Q", title="From token", scale=down, axis=alt.Axis(**axis))
    legend = alt.Legend(tickCount=3)
    colour = alt.Color("attention:Q", title="Attention", scale=alt.Scale(domain=[0, 1]), legend=legend)
    tooltip = charts.tips("from:N|from", "to:N|looks at", "attention:Q|Attention|.3f")
    ends = {"x2": "source_until:Q", "y2": "destination_until:Q"}
    return charts.template(
        420, charts.named_chart("cells").mark_rect().encode(x=x, y=y, color=colour, tooltip=tooltip, **ends)
    )
