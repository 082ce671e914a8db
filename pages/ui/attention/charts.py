"""A head's pattern, and the guesses after each layer, as pictures: takes DataFrames, returns pictures."""

from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from engine.heads.attention import HeadView, Overview
from engine.views.colors import GREY, MARK, UNDEFINED
from pages.ui.figures import charts
from pages.ui.figures.text_picture import text_picture

LETTERS = 6  # of a guess in a cell
LENS_AROUND_PX = 170  # the legend, the slanted tokens, and the axis title
LENS_TIPS = charts.tips("after:N|After layer; token:N|Read; next:N|Next token; next_p:Q|Its probability|.1%",
                        "next_rank:Q|Its rank|,; guesses:N|Guesses")  # fmt: skip


def pattern_map(frame: pd.DataFrame) -> charts.Picture:
    """Returns destinations x sources of `tables.map_cells`, coloured by attention from 0 to 1."""
    return charts.picture(_pattern_map(float(frame["source"].min()), float(frame["source_until"].max())), cells=frame)


def raised_text(seen: Overview, view: HeadView) -> charts.Picture:
    """Returns the text, each token tinted by how much the heads raised its logit from the token before it."""
    raised = np.concatenate([[0.0], view.raised_nats.sum(1, dtype=np.float64)[:-1]])
    frame = pd.DataFrame({"piece": seen.pieces, "token": seen.pieces, "raised": raised, "lowered": -raised})
    full, signs = float(np.abs(raised).max()) or 1.0, ("logit raised", "logit lowered")  # blue is raised, as on screen
    return text_picture(frame, "lowered", full, signs, "token:N|Token", "raised:Q|Logit raised, nats|+.2f")


def lens_grid(rows: pd.DataFrame) -> charts.Picture:
    """Returns layers x tokens of `tables.lens_rows`: the guess, colored by the probability of the next token. A clicked
    cell is the selection `cell`."""
    marked = rows.assign(at=rows["index"].astype(str) + "|" + rows["token"], short=rows["guess"].str[:LETTERS])
    return charts.picture(_lens_grid(tuple(rows["after"].unique())), cells=marked)


@charts.kept
def _lens_grid(names: tuple[str, ...]) -> charts.Template:
    token = "substring(datum.label, indexof(datum.label, '|') + 1)"
    axis = partial(alt.Axis, ticks=False, domain=False, labelOverlap=False)
    x = alt.X("at:N", sort=None, title="Token that the model has read", axis=axis(labelExpr=token, labelAngle=-45))
    y = alt.Y("after:N", sort=list(names), title="After layer", axis=axis(labelOverlap=True))
    base = charts.named_chart("cells").encode(x=x, y=y, tooltip=LENS_TIPS)
    legend = alt.Legend(orient="top", direction="horizontal", format=".0%", titleLimit=400, tickCount=3)
    color = alt.Color("next_p:Q", title="Probability of the next token", scale=alt.Scale(domain=[0, 1]), legend=legend)
    clicked = alt.selection_point(name="cell", fields=["index"], empty=False)
    ring = {name: alt.condition(clicked, alt.value(on), alt.value(off))
            for name, on, off in (("stroke", MARK, GREY), ("strokeWidth", 2, 0.5))}  # fmt: skip
    rect = base.mark_rect(cursor="pointer", invalid="show").encode(color=_known(color), **ring).add_params(clicked)
    row_px = min(24, max(15, 460 // len(names)))
    return charts.template(
        row_px * len(names) + LENS_AROUND_PX, rect, *charts.on_cells(base, 10, "next_p", "short:N", cursor="pointer")
    )


def _known(color: alt.Color) -> Any:
    """Returns the color of cells, and that of undefined ones for the last token, which none follows."""
    return alt.condition("!isValid(datum.next_p)", alt.value(UNDEFINED), color)


def lens_line(rows: pd.DataFrame) -> charts.Picture:
    """Returns the probability of one token's next token after each layer, of its `tables.lens_rows`."""
    return charts.picture(_lens_line(tuple(rows["after"])), cells=rows)


@charts.kept
def _lens_line(names: tuple[str, ...]) -> charts.Template:
    x = alt.X("after:N", sort=list(names), title="After layer", axis=alt.Axis(labelAngle=0, labelOverlap=True))
    y = alt.Y("next_p:Q", title="Probability", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".0%", tickCount=5))
    line = charts.named_chart("cells").mark_line(point={"size": 50}).encode(x=x, y=y, tooltip=LENS_TIPS)
    return charts.template(220, line)


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
