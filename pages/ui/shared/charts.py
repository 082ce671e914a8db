"""DataFrame in, Altair chart out: pure functions without streamlit, on fixed scales: a slider moves only the data.

Accuracies and levels are shares (0-1) in the frames and percent on the axes. On screen Streamlit's theme supplies the
colours; a saved file gets the same ones from `.streamlit/config.toml`, the only place where colours are set.
"""

import json
import tomllib
from copy import copy
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

CONFIG = Path(__file__).resolve().parents[3] / ".streamlit" / "config.toml"
# the order fixes each one's place in the palette
SERIES = ["measured", "now", "full model", "chance", "estimate"]
PATTERNS = [[1, 0], [1, 0], [7, 4], [2, 4], [5, 4]]
DASHES = alt.StrokeDash("series:N", scale=alt.Scale(domain=SERIES, range=PATTERNS), legend=None)
COLOUR = alt.Color("series:N", scale=alt.Scale(domain=SERIES), legend=None)
LEVELS = [level / 10 for level in range(11)]  # the axis goes on a little, to make room for the names of the lines
AXIS_PX = 85  # an x axis with its title, which Streamlit counts as part of the height
CELL = {"stroke": "#8a949e", "strokeOpacity": 0.45, "strokeWidth": 0.5}
CROSS = "M-1,-1L1,1M-1,1L1,-1"
FILE_WIDTH_PX = 900
# text marks are black in either theme; the last of the palette's eight colours is the theme's own text colour, nearly
INK = alt.Fill("ink:N", legend=None, scale=alt.Scale(domain=[*"1234567", "ink"]))
PALE = 0.45  # opacity of cells on which text is to be read
TEMPLATES = 64
_SPECS: dict[int, tuple[Any, dict[str, Any]]] = {}  # by the identity of a chart's layers, which stand beside it


def accuracy_curve(
    points: pd.DataFrame, now: pd.DataFrame, full: float | None, chance: float, x_title: str,
    estimates: pd.DataFrame | None = None, hand: pd.DataFrame | None = None,
) -> alt.LayerChart:  # fmt: skip
    """Accuracy against pruning level, with 95 % intervals; `points` and `now` have level, acc, low, high, n, pruned.

    `now` is the current position: one row, or none while nothing is measured there. `estimates` and `hand` (where the
    slider moves) have level, estimated, low, high, trusted: drawn dashed and hollow, in a series of their own.
    """
    lines = [("chance", chance, full is not None and chance > full)]
    lines += [] if full is None else [("full model", full, chance <= full)]
    nothing = pd.DataFrame(columns=["level", "estimated", "low", "high", "trusted"])
    return filled(
        _curve(x_title),
        points=points.assign(series="measured"),
        now=now.assign(series="now"),
        lines=pd.DataFrame(lines, columns=["series", "acc", "above"]).assign(end=1.02),
        estimates=(nothing if estimates is None else estimates).assign(series="estimate"),
        hand=(nothing if hand is None else hand).assign(series="estimate"),
    )


@lru_cache(TEMPLATES)
def _curve(x_title: str) -> alt.LayerChart:
    x = alt.X("level:Q", title=x_title, scale=alt.Scale(domain=[0, 1.16]), axis=alt.Axis(format="%", values=LEVELS))
    scale, axis = alt.Scale(domain=[0, 1]), alt.Axis(format="%", tickCount=5)
    y, y_estimated = (alt.Y(f"{name}:Q", title="Questions right", scale=scale, axis=axis)
                      for name in ("acc", "estimated"))  # fmt: skip
    y_low = alt.Y("low:Q", title="Questions right")
    tooltip = [
        alt.Tooltip("level:Q", title="Pruned", format=".0%"),
        alt.Tooltip("pruned:N", title="Components"),
        alt.Tooltip("acc:Q", title="Questions right", format=".1%"),
        alt.Tooltip("low:Q", title="95 % interval from", format=".1%"),
        alt.Tooltip("high:Q", title="to", format=".1%"),
        alt.Tooltip("n:Q", title="Questions"),
    ]
    about = [
        alt.Tooltip("level:Q", title="Pruned", format=".0%"),
        alt.Tooltip("estimated:Q", title="Estimate, not measured", format=".0%"),
        alt.Tooltip("low:Q", title="With the error to expect, from", format=".0%"),
        alt.Tooltip("high:Q", title="to", format=".0%"),
        alt.Tooltip("trusted:N", title="To be trusted"),
    ]
    measured = named_chart("points").encode(x=x, color=COLOUR, tooltip=tooltip)
    here = named_chart("now").encode(x=x, color=COLOUR, tooltip=tooltip)
    estimated = named_chart("estimates").encode(x=x, color=COLOUR, tooltip=about)
    hand = named_chart("hand").encode(x=x, color=COLOUR, tooltip=about)
    layers = [
        *_lines(y),
        estimated.mark_area(opacity=0.15).encode(y=y_low, y2="high:Q"),
        estimated.mark_line(strokeWidth=1.5, opacity=0.8).encode(y=y_estimated, strokeDash=DASHES),
        measured.mark_line(strokeWidth=2, opacity=0.55).encode(y=y),
        measured.mark_rule(strokeWidth=1.5).encode(y=y_low, y2="high:Q"),
        measured.mark_point(filled=True, size=55, opacity=1).encode(y=y),
        here.mark_rule(strokeWidth=2.5).encode(y=y_low, y2="high:Q"),
        here.mark_point(filled=True, size=190, opacity=1, shape="diamond").encode(y=y),
        hand.mark_point(filled=False, size=190, opacity=1, strokeWidth=2.5, shape="diamond").encode(y=y_estimated),
    ]
    return alt.layer(*layers).properties(height=300)


def head_map(frame: pd.DataFrame, title: str = "Importance") -> alt.LayerChart:
    """Layers x heads, a cross on each pruned one; `frame`: layer, head, name, score (or nan), rank, pruned, state."""
    known = bool(frame["score"].notna().any())
    top = (float(frame["score"].max()) or 1.0) if known else 1.0
    return filled(_head_map(title, int(frame["layer"].max()) + 1, known, top), heads=frame)


@lru_cache(TEMPLATES)
def _head_map(title: str, n_layers: int, known: bool, top: float) -> alt.LayerChart:
    row_px = row_height(n_layers)
    base = head_grid(
        alt.Tooltip("score:Q", title=title, format=".3~g"),
        alt.Tooltip("rank:Q", title="Rank (1 = first to go)"),
        alt.Tooltip("state:N", title="State"),
    )
    colour = alt.Color(
        "score:Q",
        title=title,
        # most heads score far below the best few; the root keeps them apart, and zero stays zero
        scale=alt.Scale(type="sqrt", domain=[0, top]),
        legend=alt.Legend(format=".2~g", tickCount=3, gradientLength=row_px * n_layers) if known else None,
    )
    cells = base.mark_rect(**CELL)
    cells = cells.encode(color=colour) if known else cells.encode(color=alt.value("#8a949e33"))
    return alt.layer(cells, *_crosses(base, row_px)).properties(height=row_px * n_layers + AXIS_PX)


def ffn_bars(frame: pd.DataFrame, title: str = "Accuracy lost without it") -> alt.LayerChart:
    """One bar a layer, pale and crossed where pruned; `frame`: layer, name, score (or nan), rank, pruned, state."""
    known = bool(frame["score"].notna().any())
    shown = frame if known else frame.assign(score=1.0)
    low, high = min(0.0, float(shown["score"].min())), max(0.0, float(shown["score"].max()))
    return filled(_ffn_bars(title, int(frame["layer"].max()) + 1, known, low, high or 1.0), ffns=shown)


@lru_cache(TEMPLATES)
def _ffn_bars(title: str, n_layers: int, known: bool, low: float, high: float) -> alt.LayerChart:
    row_px = row_height(n_layers)
    x = alt.X(
        "score:Q",
        title=title if known else None,
        scale=alt.Scale(domain=[low, high], nice=True),
        axis=alt.Axis(tickCount=3, format=".2~%") if known else None,
    )
    base = named_chart("ffns").encode(
        y=_layers(),
        tooltip=[
            alt.Tooltip("name:N", title="FFN"),
            *([alt.Tooltip("score:Q", title=title, format=".2~%")] if known else []),
            alt.Tooltip("rank:Q", title="Rank (1 = first to go)"),
            alt.Tooltip("state:N", title="State"),
        ],
    )
    fill = alt.condition("datum.pruned", alt.value(0.12), alt.value(0.9 if known else 0.25))
    bars = base.mark_bar(strokeWidth=1, height={"band": 0.72}).encode(x=x, opacity=fill)
    at_zero = base.encode(x=alt.datum(0.0 if known else 0.5))
    height = row_px * n_layers + (AXIS_PX if known else 0)
    return alt.layer(bars, *_crosses(at_zero, row_px)).properties(height=height)


def to_png(chart: alt.LayerChart, title: str) -> bytes:
    """The chart as a PNG picture at twice the screen's resolution, made on this computer."""
    return rasterised(to_svg(chart, title))


def rasterised(drawing: bytes) -> bytes:
    """An SVG drawing as a PNG picture at twice its size."""
    import vl_convert

    return vl_convert.svg_to_png(drawing.decode(), scale=2)


def to_svg(chart: alt.LayerChart, title: str) -> bytes:
    """The chart as an SVG drawing."""
    import vl_convert

    return vl_convert.vegalite_to_svg(_file_spec(chart, title)).encode()


def _lines(y: alt.Y) -> list[alt.Chart]:
    """Horizontal lines across the curve, each with its name at the right end, above or below it."""
    base = named_chart("lines").encode(y=y, color=COLOUR)
    tooltip = [alt.Tooltip("series:N", title="Line"), alt.Tooltip("acc:Q", title="Questions right", format=".1%")]
    name = base.encode(x=alt.X("end:Q"), text="series:N")
    return [
        base.mark_rule(strokeWidth=1.5).encode(strokeDash=DASHES, tooltip=tooltip),
        name.transform_filter("datum.above").mark_text(align="left", baseline="bottom", dy=-4),
        name.transform_filter("!datum.above").mark_text(align="left", baseline="top", dy=4),
    ]


def head_grid(*tooltip: alt.Tooltip) -> alt.Chart:
    """Layers x heads of the frame `heads`, no marks yet; a tooltip begins with the head's name."""
    axis = alt.Axis(labelAngle=0, labelOverlap=True, ticks=False, domain=False)
    return named_chart("heads").encode(
        x=alt.X("head:O", title="Head", axis=axis), y=_layers(), tooltip=[alt.Tooltip("name:N", title="Head"), *tooltip]
    )


def written(base: alt.Chart, size_px: int, **mark: Any) -> alt.Chart:
    """Text in the theme's own colour; give it `text`."""
    return inked(base.mark_text(fontSize=size_px, **mark))


def inked(base: alt.Chart) -> alt.Chart:
    """The chart in the theme's own text colour, for marks of text."""
    return base.transform_calculate(ink="'ink'").encode(fill=INK)


def named_chart(data: str) -> alt.Chart:
    """A chart of the frame that `with_data` puts under this name."""
    return alt.Chart(alt.NamedData(data))


def with_data(chart: alt.LayerChart, **frames: pd.DataFrame) -> alt.LayerChart:
    """The chart with its frames by name.

    Names that stay the same let the browser put new numbers into the picture that is there. Altair's own names are
    digests of the content: each change would draw the chart anew, and in quick succession lose track of its data.
    """
    chart.datasets = {
        name: json.loads(frame.to_json(orient="records", double_precision=15)) for name, frame in frames.items()
    }
    return chart


def filled(template: alt.LayerChart, **frames: pd.DataFrame) -> alt.LayerChart:
    """A copy of the template with these frames; building a chart takes a hundred times as long."""
    chart = copy(template)
    object.__setattr__(chart, "_kwds", dict(template._kwds))  # Altair's own copy builds every layer anew
    return with_data(chart, **frames)


def screen_spec(chart: alt.LayerChart) -> dict[str, Any]:
    """What Vega-Lite draws; of charts from one template all but the data is made once."""
    layers = chart.layer
    if _SPECS.get(id(layers), (None,))[0] is not layers:
        if len(_SPECS) >= TEMPLATES:
            _SPECS.clear()
        _SPECS[id(layers)] = layers, {key: value for key, value in chart.to_dict().items() if key != "config"}
    return {**_SPECS[id(layers)][1], "datasets": chart.datasets}


def _layers() -> alt.Y:
    axis = alt.Axis(labelOverlap=True, ticks=False, domain=False)
    return alt.Y("layer:O", title="Layer", axis=axis)


def _crosses(base: alt.Chart, row_px: int) -> list[alt.Chart]:
    """Dark crosses with a light edge: to be seen on any cell and in both themes."""
    size = (0.5 * row_px) ** 2
    pruned = base.transform_filter("datum.pruned")
    return [
        pruned.mark_point(shape=CROSS, size=size, stroke="#ffffff", strokeWidth=4, opacity=0.9),
        pruned.mark_point(shape=CROSS, size=size, stroke="#1b2733", strokeWidth=1.8, opacity=1),
    ]


def row_height(n_layers: int) -> int:
    """Pixels of a layer's row in a map."""
    return max(9, min(30, 420 // n_layers))


def _file_spec(chart: alt.LayerChart, title: str) -> dict[str, Any]:
    spec = chart.properties(width=FILE_WIDTH_PX, title=title).to_dict()
    spec["config"] = {**spec.get("config", {}), **_file_config()}
    return spec


@cache
def _file_config() -> dict[str, Any]:
    """Vega's config for a saved picture: the light theme's colours."""
    theme = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["theme"]["light"]
    sequential = theme["chartSequentialColors"]
    return {
        "background": theme["backgroundColor"],
        "font": "sans-serif",
        "range": {
            "category": theme["chartCategoricalColors"],
            "ramp": sequential,
            "heatmap": sequential,
            "diverging": theme["chartDivergingColors"],
        },
        "mark": {"color": theme["chartCategoricalColors"][0]},
        "axis": {"gridColor": theme["borderColor"], "labelColor": theme["textColor"], "titleColor": theme["textColor"]},
        "view": {"stroke": None},
    }
