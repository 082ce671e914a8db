"""Charts of losses over training: of every run, of tokens of a passage, and by the index in the text. As in `charts`,
each takes a DataFrame and returns a picture."""

from functools import partial
from typing import Any

import altair as alt
import pandas as pd

from engine.views.colors import MARK
from pages.ui.figures import charts
from pages.ui.training.charts import (
    BAND,
    HEIGHT,
    LABELS_PX,
    LATER,
    MOMENTS,
    TokenAxis,
    by_run,
    extent,
    marker,
    panel,
    quantity,
    rows_on_axis,
    window_bands,
)

NAME_SHARE, NAME_WIDTH = 0.09, 0.25  # the room of a run's name at its line, of the height and of the width
SLOPE_REACH = 0.3  # d loss / d ln(index), nats
INDICES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]


def curves(
    runs: pd.DataFrame, windows: pd.DataFrame, look: TokenAxis, column: str, title: str, height: int = 210
) -> charts.Picture:
    """Returns one quantity of every run over training, one line per run."""
    names = tuple(dict.fromkeys(runs["run"]))
    known = rows_on_axis(runs, look).dropna(subset=[column])
    of = _curves(look, names, column, title, extent(known[column]), height)
    return panel(of, runs=known, windows=windows, names=end_names(known, column))


def end_names(runs: pd.DataFrame, column: str) -> pd.DataFrame:
    """Returns one row per run: its name, the last point of its line, and `at`, the height of the name, which is `above`
    the line if the other lines are mostly below it there. Names that would overlap are moved apart."""
    last = runs.sort_values("tokens").groupby("run", sort=False).tail(1)
    rows = list[dict[str, Any]]()
    for run, tokens, value in zip(last["run"], last["tokens"], last[column], strict=True):
        above = _is_above(runs, column, run, tokens, value)
        rows.append({"run": run, "tokens": tokens, column: value, "above": above})
    low, high = extent(runs[column])
    step, near = NAME_SHARE * ((high - low) or 1.0), NAME_WIDTH * float(runs["tokens"].max()) if len(runs) else 0.0
    for above, sign in ((True, 1.0), (False, -1.0)):
        placed = list[dict[str, Any]]()
        for row in sorted((each for each in rows if each["above"] is above), key=lambda each: sign * each[column]):
            taken = [sign * each["at"] + step for each in placed if abs(each["tokens"] - row["tokens"]) < near]
            row["at"] = sign * max([sign * row[column], *taken])
            placed.append(row)
    return pd.DataFrame(rows, columns=["run", "tokens", column, "above", "at"])


def _is_above(runs: pd.DataFrame, column: str, run: str, tokens: float, value: float) -> bool:
    before = runs[(runs["run"] != run) & (runs["tokens"] <= tokens)].sort_values("tokens")
    return before.empty or bool(value >= before.groupby("run")[column].last().mean())


@charts.kept
def _curves(
    look: TokenAxis, names: tuple[str, ...], column: str, title: str, ends: tuple[float, float], height: int
) -> charts.Template:
    colour = by_run(names)
    y_of = partial(quantity, domain=list(ends), nice=True)
    y = y_of(column, title)
    base = charts.named_chart("runs").encode(x=look.x(), y=y, color=colour)
    tooltip = charts.tips(f"run:N|Run; tokens:Q|Tokens|,.0f; {column}:Q|{title}|.3f")
    lines = base.mark_line(strokeWidth=2).encode(tooltip=tooltip)
    now = base.transform_filter(look.now)
    dots = now.mark_point(filled=True, size=60, opacity=1).encode(tooltip=tooltip)
    bands = charts.named_chart("windows").mark_rect(opacity=BAND).encode(
        x=look.x("start"), x2="end:Q", color=colour, tooltip=charts.tips("run:N|Phase change of"))  # fmt: skip
    ends_at = charts.named_chart("names").encode(x=look.x(), color=colour)
    ends_at = ends_at.mark_point(filled=True, size=35, opacity=1, aria=False).encode(y=y)
    at = charts.named_chart("names").encode(x=look.x(), y=y_of("at", title), text="run:N")
    named = [
        charts.written(at.transform_filter(where), 12, align="right", dx=-2, dy=dy)
        for where, dy in (("datum.above", -9), ("!datum.above", 11))
    ]
    return charts.template(height + charts.AXIS_PX, bands, lines, marker(look), dots, ends_at, *named)


def tokens_panel(frame: pd.DataFrame, windows: pd.DataFrame, run: str, look: TokenAxis) -> charts.Picture:
    """Returns the loss of chosen tokens of a passage over the training of one run."""
    own = frame[frame["run"] == run]
    of = _tokens_panel(look, tuple(dict.fromkeys(frame["token"])), tuple(dict.fromkeys(own["token"])))
    return panel(of, tokens=rows_on_axis(own, look), windows=windows[windows["run"] == run])


@charts.kept
def _tokens_panel(look: TokenAxis, tokens: tuple[str, ...], drawn: tuple[str, ...]) -> charts.Template:
    legend = alt.Legend(values=list(drawn), orient="top", title=None, labelLimit=0, symbolType="stroke",
                        symbolStrokeWidth=3, padding=0)  # fmt: skip
    colour = alt.Color("token:N", scale=alt.Scale(domain=list(tokens)), legend=legend)
    base = charts.named_chart("tokens").encode(x=look.x(), y=quantity("loss", "Loss, nats"), color=colour)
    tooltip = charts.tips("token:N|Token; tokens:Q|Tokens trained on|,.0f; loss:Q|Loss, nats|.3f")
    lines = base.mark_line(strokeWidth=2).encode(tooltip=tooltip)
    return charts.template(HEIGHT + charts.AXIS_PX, *window_bands(look), lines, marker(look))


def heat_panel(cells: pd.DataFrame, windows: pd.DataFrame, run: str, look: TokenAxis) -> charts.Picture:
    """Returns d loss / d ln(index) by index in the text (logarithmic) and tokens."""
    indices = (int(cells["first"].min()), int(cells["last"].max())) if len(cells) else (1, 2)
    of = _heat_panel(look, *indices)
    end = min(look.high, float(cells["tokens"].max())) if len(cells) else look.high  # of the run
    shown = cells.assign(since=cells["since"].clip(lower=look.low), until=cells["until"].clip(upper=end))
    return panel(of, cells=shown[shown["until"] > shown["since"]], windows=windows[windows["run"] == run])


@charts.kept
def _heat_panel(look: TokenAxis, first: int, last: int) -> charts.Template:
    scale = charts.around_zero(SLOPE_REACH, clamp=True)
    legend = alt.Legend(title="nats / ln(index)", orient="top", direction="horizontal",
                        gradientLength=90, gradientThickness=8,
                        titleOrient="left", tickCount=3, padding=4, titleLimit=0)  # fmt: skip
    reach = alt.Scale(type="log", domain=[max(1, first), last], nice=False, clamp=True)
    named = [index for index in INDICES if index <= last]
    axis = alt.Axis(grid=False, values=named, format="d", minExtent=LABELS_PX)
    y = alt.Y("first:Q", title="Token index", scale=reach, axis=axis)
    tooltip = charts.tips(
        "tokens:Q|Tokens trained on|,.0f; first:Q|Index from|d; last:Q|to|d; slope:Q|d loss / d ln(index), nats|+.3f"
    )
    cells = charts.named_chart("cells").mark_rect().encode(
        x=look.x("since"), x2="until:Q", y=y, y2="last:Q", tooltip=tooltip,
        opacity=alt.condition(f"datum.since <= {look.at}", alt.value(1), alt.value(LATER)),
        color=alt.Color("slope:Q", scale=scale, legend=legend))  # fmt: skip
    edges = charts.named_chart("windows").transform_filter(f"!({MOMENTS})")
    edge = [edges.mark_rule(color=MARK, strokeDash=[4, 3]).encode(x=look.x(end)) for end in ("start", "end")]
    return charts.template(HEIGHT + 20 + charts.AXIS_PX, cells, *edge, window_bands(look)[1], marker(look))
