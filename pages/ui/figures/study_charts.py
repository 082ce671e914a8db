"""Charts of a study: DataFrames of `study_tables` in, pictures out, for one shot count each."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import pandas as pd

from engine.studies.statements import SMALL_LOSS
from engine.views.colors import GREY, MARK, palette
from pages.ui.figures import charts
from pages.ui.figures.study_tables import LEAST_LEVELS, NAMES, POINTS, TASKS, TOP, has_mean, line_names
from pages.ui.page.defaults import AXES, Axis

_PLACES = dict(zip(("now", "second", "estimate", "other"), TASKS, strict=True))
DOMAIN = palette(pruned="mean", random="random", **_PLACES)
IS_LINE = f"datum.n_levels >= {LEAST_LEVELS}"
RIGHT = "Questions right"
MEAN = "acc:Q|Mean of tasks|.1%; lost:Q|Points lost|.1f; n:Q|Tasks"
LINE = "line:N|Line; level:Q|Pruned|.0%"
INTERVAL = "acc:Q|Questions right|.1%; low:Q|from|.1%; high:Q|to|.1%"
HEIGHT_PX = 340
LETTER = 6 / 755  # width of a letter of a name, about, in levels
_OTHERS = [name for by, name in NAMES.items() if by not in ("own", "random")]
BELOW = alt.Legend(orient="bottom", title=None, columns=2)


def curves(frame: pd.DataFrame, axis: Axis) -> charts.Picture:
    """Returns accuracy against level: named lines of tasks, their mean, and the band of random rankings."""
    if not has_mean(frame):
        frame = frame[frame["place"] != "mean"]
    return charts.picture(_curves(axis), curves=frame, names=line_names(frame, LETTER))


@charts.kept
def _curves(axis: Axis) -> charts.Template:
    x, right = _share("level:Q", AXES[axis]), partial(_share, title=RIGHT, top=TOP)
    colour = alt.Color("place:N", scale=alt.Scale(domain=DOMAIN), legend=None)
    base = charts.named_chart("curves").encode(
        x=x, detail="line:N", color=colour, tooltip=charts.tips(LINE, "acc:Q|Questions right|.1%")
    )
    interval: dict[str, Any] = {"tooltip": charts.tips(LINE, INTERVAL)}
    named = charts.named_chart("names").encode(x=x, y=right("at:Q"), text="line:N")
    texts = (
        charts.written(named.transform_filter("datum.place !== 'mean'"), 11),
        named.transform_filter("datum.place === 'mean'").mark_text(fontSize=11, fontWeight=600),  # between other lines
    )
    names = [layer for text in texts for layer in charts.haloed(text)]
    names[-1] = names[-1].encode(color=colour)
    band = _of_kind(base, "random").mark_area(opacity=0.2).encode(y=right("low:Q"), y2="high:Q")
    layers = [
        _of_kinds(base, POINTS).transform_filter(f"!({IS_LINE})").mark_point(filled=True, size=50).encode(**interval),
        _of_kinds(base, TASKS).transform_filter(IS_LINE).mark_line(strokeWidth=1.5).encode(**interval),
        _of_kind(base, "random").mark_line(strokeWidth=1.5).encode(**interval),
        _of_kind(base, "mean")
        .transform_filter(IS_LINE)
        .mark_line(strokeWidth=2, strokeDash=[6, 3], point={"size": 20}),
    ]
    drawn = [each.encode(y=right("acc:Q")) for each in layers]
    return charts.template(HEIGHT_PX, band, *drawn, *names)


def lines(frame: pd.DataFrame) -> charts.Picture:
    """Returns accuracy against heads pruned, one line per task and kind of order."""
    drawn = tuple(name for name in NAMES.values() if name in set(frame["ranking"]))
    return charts.picture(_lines(drawn), lines=frame)


@charts.kept
def _lines(drawn: tuple[str, ...]) -> charts.Template:
    rankings = alt.Legend(orient="bottom", title=None, columns=2, values=list(drawn))
    scale = alt.Scale(domain=palette(_OTHERS, pruned=NAMES["own"], random=NAMES["random"]))
    base = charts.named_chart("lines").encode(
        x=_share("level:Q", AXES["heads"]),
        y=_share("acc:Q", RIGHT),
        color=alt.Color("ranking:N", scale=scale, legend=rankings),
        strokeDash=alt.StrokeDash("task:N", legend=BELOW),
        tooltip=charts.tips("task:N|Task; ranking:N|Ranked by; level:Q|Pruned|.0%", INTERVAL),
    )
    return charts.template(HEIGHT_PX, base.mark_line(strokeWidth=2), base.mark_point(size=35, filled=True))


def grid_map(cells: pd.DataFrame, edges: pd.DataFrame) -> charts.Picture:
    """Returns points of accuracy lost over heads x FFNs pruned; a line bounds the cells with a small loss."""
    across, up = (tuple(float(level) for level in sorted(cells[name].unique())) for name in ("heads", "ffns"))
    return charts.picture(_grid_map(across, up), cells=cells, edges=edges)


@charts.kept
def _grid_map(across: tuple[float, ...], up: tuple[float, ...]) -> charts.Template:
    scale, axis = alt.Scale(nice=False, zero=False), partial(alt.Axis, format="%", grid=False, labelOverlap=True)
    more = "datum.value == 50 ? '50 or more' : datum.label"
    legend = alt.Legend(values=[0, 25, 50], orient="bottom", direction="horizontal", gradientLength=140, labelExpr=more)
    base = charts.named_chart("cells")
    cell = base.mark_rect(stroke=GREY, strokeOpacity=0.3).encode(
        x=alt.X("x:Q", title=AXES["heads"], axis=axis(values=list(across)), scale=scale),
        x2="x2:Q",
        y=alt.Y("y:Q", title=AXES["ffns"], axis=axis(values=list(up)), scale=scale),
        y2="y2:Q",
        color=alt.Color("lost:Q", title="Points lost", scale=alt.Scale(domain=[0, 50], clamp=True), legend=legend),
        tooltip=charts.tips("heads:Q|Heads pruned|.0%; ffns:Q|FFNs pruned|.0%", MEAN),
    )
    at = base.transform_filter("datum.lost >= 0.5").encode(x="heads:Q", y="ffns:Q")  # no room for signs
    numbers = charts.on_cells(at, 9, "lost", alt.Text("lost:Q", format=".0f"))
    edge = charts.named_chart("edges").mark_rule(strokeWidth=3, color=MARK)
    edge = edge.encode(x="x:Q", y="y:Q", x2="x2:Q", y2="y2:Q", tooltip=alt.value(f"border of {SMALL_LOSS} points lost"))
    return charts.template(HEIGHT_PX, cell, *numbers, edge)


def _share(field: str, title: str, top: float = 1.0) -> dict[str, Any]:
    """Returns a position channel in percent, always from 0 to 100 (or to `top`)."""
    axis, scale = {"format": "%", "values": [0, 0.2, 0.4, 0.6, 0.8, 1]}, {"domain": [0, top], "nice": False}
    return {"field": field.removesuffix(":Q"), "type": "quantitative", "title": title, "axis": axis, "scale": scale}


def _of_kinds(base: alt.Chart, kinds: Sequence[str]) -> alt.Chart:
    return base.transform_filter(alt.FieldOneOfPredicate("place", list(kinds)))


def _of_kind(base: alt.Chart, kind: str) -> alt.Chart:
    return base.transform_filter(alt.datum.place == kind)
