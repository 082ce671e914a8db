"""A head's pattern as a picture: takes a DataFrame, returns a picture."""

import altair as alt
import numpy as np
import pandas as pd

from engine.heads.attention import HeadView, Overview
from pages.ui.figures import charts
from pages.ui.figures.text_picture import text_picture


def pattern_map(frame: pd.DataFrame) -> charts.Picture:
    """Returns destinations x sources of `tables.map_cells`, coloured by attention from 0 to 1."""
    return charts.picture(_pattern_map(float(frame["source"].min()), float(frame["source_until"].max())), cells=frame)


def raised_text(seen: Overview, view: HeadView) -> charts.Picture:
    """Returns the text, each token tinted by how much the heads raised its logit from the token before it."""
    raised = np.concatenate([[0.0], view.raised_nats.sum(1, dtype=np.float64)[:-1]])
    frame = pd.DataFrame({"piece": seen.pieces, "token": seen.pieces, "raised": raised, "lowered": -raised})
    full, signs = float(np.abs(raised).max()) or 1.0, ("logit raised", "logit lowered")  # blue is raised, as on screen
    return text_picture(frame, "lowered", full, signs, "token:N|Token", "raised:Q|Logit raised, nats|+.2f")


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
