"""Charts of in-context learning: takes a DataFrame (`pages.ui.in_context.tables`), returns a picture, losses in
nats."""

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from engine.texts.incontext import EARLY, LATE, MIN_TOKENS
from engine.views.colors import GREY, UNKNOWN, palette
from pages.ui.figures import charts
from pages.ui.in_context.tables import FULL, PRUNED

TITLES = {"full": "Full ablation", "pattern-preserving": "Pattern-preserving ablation"}
TITLES |= {"before_and_after": "Before-and-after vector"}
TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
STEP_NATS, SLOPE_STEP = 4, 2  # of the ends of an axis, so that it rarely changes while a slider moves
HEIGHT_PX, SLOPE_PX, ROW_PX = 460, 280, 22
FIRST = 10  # token of the curve: those before it are single tokens of a few texts, all noise
N_NAMED = 6
BESIDE = 0.03  # between two intervals, in prefix matching
BAND_TEXTS = 3  # the interval of two is 13 standard errors either way: wider than any curve
INTERVAL = "low:Q|95% interval from|+.3f; high:Q|to|+.3f"
ZERO = pd.DataFrame({"at": [0.0]})


def loss_curve(frame: pd.DataFrame) -> charts.Picture:
    """Returns loss against token index from `FIRST`, with 95% bands; `frame` of `tables.with_ends`."""
    frame = frame[frame["first"] >= FIRST]
    _, highest = _reach(frame, STEP_NATS)
    drawn = _loss_curve(max(2 * STEP_NATS, highest), float(frame["last"].max()), _drawn_series(frame))
    ends = pd.DataFrame({"at": [EARLY, LATE]})
    return charts.picture(drawn, points=_with_names(frame), ends=ends)


@charts.kept
def _loss_curve(highest: int, last: float, drawn: tuple[str, ...]) -> charts.Template:
    base = charts.named_chart("ends").encode(x=alt.X("at:Q"), tooltip=alt.value(None))
    rules = base.mark_rule(strokeDash=[2, 3], stroke=GREY, strokeWidth=1.5)  # the axis names them
    y = alt.Scale(domain=[0, highest], nice=False)
    *lines, points = _lines("Loss (nats)", y, (FIRST, last), drawn)
    large = points.transform_filter("datum.is_end").mark_point(filled=True, size=110, opacity=1)
    return charts.template(HEIGHT_PX, rules, *lines, points, large)


def slope_chart(frame: pd.DataFrame) -> charts.Picture:
    """Returns d loss / d ln(index) against token index, with 95% bands; `frame` of `tables.slopes`."""
    lowest, highest = _reach(frame, SLOPE_STEP)
    drawn = _slope_chart(min(-2, lowest), max(2, highest), float(frame["last"].max()), _drawn_series(frame))
    return charts.picture(drawn, points=_with_names(frame), zero=ZERO)


@charts.kept
def _slope_chart(lowest: int, highest: int, last: float, drawn: tuple[str, ...]) -> charts.Template:
    y = alt.Scale(domain=[lowest, highest], nice=False)
    return charts.template(SLOPE_PX, _at_zero(), *_lines("d loss / d ln(index), nats", y, (1, last), drawn))


def attribution_map(frame: pd.DataFrame, column: str, reach: float) -> charts.Picture:
    """Returns layers x heads, colored by `column` in nats from -reach to reach; `frame` of `tables.head_frame`."""
    n_layers, with_interval = int(frame["layer"].max()) + 1, f"{column} low" in frame
    return charts.picture(_attribution_map(column, n_layers, reach, with_interval), heads=frame)


@charts.kept
def _attribution_map(column: str, n_layers: int, reach: float, with_interval: bool) -> charts.Template:
    row_px = min(ROW_PX, charts.row_height(n_layers))
    interval = [f"{column} low:Q|95% interval from|+.3f", f"{column} high:Q|to|+.3f"] if with_interval else []
    base = charts.head_grid(f"{column}:Q|{TITLES[column]} (nats)|+.3f", *interval, "n:Q|Texts")
    legend = alt.Legend(format="+.2~f", tickCount=3, gradientLength=max(60, row_px * n_layers))
    colour = alt.Color(f"{column}:Q", title="nats", scale=charts.around_zero(reach), legend=legend)
    clear = base.transform_filter(f"datum['{column} clear']") if with_interval else base
    cells = base.mark_rect(**charts.CELL, fill=UNKNOWN), clear.mark_rect(**charts.CELL).encode(color=colour)
    return charts.template(row_px * n_layers + charts.AXIS_PX, *cells)


def attribution_scatter(frame: pd.DataFrame, column: str) -> charts.Picture:
    """Returns each head's change of the score against its prefix matching; those that are clear, with their names and
    95% intervals, side by side where they would hide one another."""
    value, low, high, clear = (frame[f"{column}{end}"] for end in ("", " low", " high", " clear"))
    frame = frame.assign(value=value, low=low, high=high, clear=clear)
    frame = frame.assign(at=_apart(frame))
    return charts.picture(_attribution_scatter(), heads=frame.assign(named=_sides(frame)), zero=ZERO)


@charts.kept
def _attribution_scatter() -> charts.Template:
    title = "Gain lost (nats)"
    axis = alt.Axis(values=[0, 0.2, 0.4, 0.6, 0.8, 1], format=".1f")
    x = alt.X("at:Q", title="Prefix matching", scale=alt.Scale(domain=[-0.12, 1.05], nice=False), axis=axis)
    tooltip = charts.tips(f"name:N|Head; prefix_matching:Q|Prefix matching|.3f; value:Q|{title}|+.3f", INTERVAL)
    base, y = charts.named_chart("heads").encode(x=x, tooltip=tooltip), alt.Y("value:Q", title=title)
    clear = base.transform_filter("datum.clear")
    layers = [
        _at_zero(),
        base.transform_filter("!datum.clear").mark_point(filled=True, size=45, opacity=0.6, color=GREY).encode(y=y),
        clear.mark_rule(strokeWidth=1.5, color=GREY).encode(y=alt.Y("low:Q", title=title), y2="high:Q"),
        clear.mark_point(filled=True, size=90, opacity=1).encode(y=y),
    ]
    for side, align, dx in (("right", "left", 8), ("left", "right", -8)):
        of_side = base.transform_filter(f"datum.named == '{side}'")
        layers.append(charts.written(of_side, 11, align=align, dx=dx).encode(y=y, text="name:N"))
    return charts.template(8 * ROW_PX + charts.AXIS_PX, *layers)


def _at_zero() -> alt.Chart:
    return charts.named_chart("zero").mark_rule(stroke=GREY, strokeWidth=1.5).encode(y="at:Q", tooltip=alt.value(None))


def _drawn_series(frame: pd.DataFrame) -> tuple[str, ...]:
    return tuple(dict.fromkeys(frame["series"]))


def _lines(title: str, scale: alt.Scale, ends: tuple[int, float], drawn: tuple[str, ...]) -> list[alt.Chart]:
    """Returns band and line of each series of the data `points`, over ln(index); the legend names those `drawn`."""
    axis = alt.Axis(values=TICKS, format="d", grid=False)
    first, last = ends
    span = alt.Scale(type="log", domain=[first, 1.1 * max(last, MIN_TOKENS)], nice=False)  # room for the last tick
    x = alt.X("index:Q", title="Token index (log scale)", scale=span, axis=axis)
    series = alt.Scale(domain=palette(full=FULL, pruned=PRUNED))
    symbol: dict[str, Any] = {"symbolType": "stroke", "symbolStrokeWidth": 3, "symbolSize": 300, "symbolOpacity": 1}
    words = "replace(datum.label, ' model', '')"  # else they are cut off in a narrow window
    legend = alt.Legend(values=list(drawn), orient="top", title=None, labelExpr=words, **symbol)
    colour = alt.Color("series:N", scale=series, legend=legend)
    dash = alt.StrokeDash("series:N", scale=alt.Scale(domain=[FULL, PRUNED], range=[[7, 4], [1, 0]]), legend=legend)
    interval = "low:Q|95% interval from|.3f; high:Q|to|.3f; n:Q|Texts"
    tooltip = charts.tips(f"series:N|Model; tokens:N|Tokens; mean:Q|{title}|.3f", interval)
    base = charts.named_chart("points").encode(x=x, color=colour)
    y = alt.Y("mean:Q", title=title, scale=scale)
    return [
        base.transform_filter(alt.datum.n >= BAND_TEXTS)
        .mark_area(opacity=0.2, clip=True)
        .encode(y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q"),
        base.mark_line(strokeWidth=2.5).encode(y=y, strokeDash=dash),
        base.mark_point(filled=True, size=45, opacity=1).encode(y=y, tooltip=tooltip),
    ]


def _reach(frame: pd.DataFrame, step: int) -> tuple[int, int]:
    """Returns the lowest and the highest value drawn, on whole steps."""
    bands = frame[frame["n"] >= BAND_TEXTS]
    low, high = min([0.0, *frame["mean"], *bands["low"]]), max([0.0, *frame["mean"], *bands["high"]])
    return step * math.floor(low / step), step * math.ceil(high / step)


def _with_names(frame: pd.DataFrame) -> pd.DataFrame:
    first, last = frame["first"].astype("Int64").astype(str), frame["last"].astype("Int64").astype(str)
    return frame.assign(tokens=first.where(first == last, first + " to " + last))


def _apart(frame: pd.DataFrame) -> np.ndarray:
    """Returns where each point is drawn: at its prefix matching, and one that is clear at least `BESIDE` to the right
    of the clear one before it."""
    found, last = frame["prefix_matching"].to_numpy(float).copy(), -math.inf
    clear = [at for at in np.argsort(found, kind="stable") if frame["clear"].iloc[at]]
    for at in clear:
        found[at] = last = max(found[at], last + BESIDE)
    return found


def _sides(frame: pd.DataFrame) -> list[str]:
    """Returns the side of each point on which its name is, "" without: those that are clear have one, the largest
    first, where no other point, interval or name is in the way."""
    near = 0.08 * max(float(frame["high"].max() - frame["low"].min()), 1e-9)  # the height of a name on the drawn span
    points, bars = frame[["at", "value"]].to_numpy(float), frame.loc[frame["clear"], ["at", "low", "high"]].to_numpy()
    taken, found = [*points], [""] * len(frame)
    for at in [at for at in np.argsort(-np.abs(points[:, 1])) if frame["clear"].iloc[at]][:N_NAMED]:
        for side, step in (("right", 0.07), ("left", -0.07)):
            place = points[at] + (step, 0)
            apart = np.abs(np.array([*taken[:at], *taken[at + 1 :]]).reshape(-1, 2) - place)
            is_crossed = any(
                0 < abs(bar - points[at][0]) and abs(bar - place[0]) < 0.07 and low - near < place[1] < high + near
                for bar, low, high in bars
            )
            is_free = not is_crossed and not ((apart[:, 0] < 0.07) & (apart[:, 1] < near)).any()
            if -0.07 <= place[0] <= 1 and is_free:
                found[at], taken = side, [*taken, place]
                break
    return found
