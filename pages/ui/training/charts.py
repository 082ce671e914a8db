"""Charts over training: takes a DataFrame, returns a picture, all with the same axis of tokens, the window shaded and a
marker.

On screen the marker listens to a field of the page (`MOMENT`), which the slider writes while it moves: it moves in the
browser, with no run of the page. A file shows its last position.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import altair as alt
import pandas as pd

from engine.views.colors import GREY, LAYERS
from pages.ui.figures import charts
from pages.ui.figures.induction_scores import TITLES
from pages.ui.training.tables import KINDS, PHASE_CHANGE

MOMENT = "training-moment"  # the id of a field in the page with the tokens at the slider's position
HEIGHT, BAND = 150, 0.22
LATER = 0.2  # opacity of what comes after the marker
LABELS_PX = 38  # the labels of the axes on the left, which are of one width in all charts
SHARED_AXIS_PX = 50  # the axis of tokens under a column of charts
BARE_PX = 170  # a chart without an axis of tokens: the chart below it has the same
STRIP_PX = 16  # above a plot, for names of what happens
PLOT_PX, NARROW_PLOT_PX = 240, 165  # the least width of the plots of up to three runs in a row, and of four
LETTER_PX, NAMES_APART_PX, OVERHANG_PX = 5.5, 10, 4  # names above a plot: a letter, room between, beyond its ends
COPIES = ("without loss on copies", "with it")  # a run and its twin
ONE = pd.DataFrame({"one": [0]})
NAMES = ["what", "tokens", "align", "dx"]  # of the rows of `names_above`
_Name = tuple[str, list[tuple[float, str, int]]]  # what it says, and its possible sides
MOMENTS = "datum.start == datum.end"  # of the rows of `windows`: those without a length


@dataclass(frozen=True)
class TokenAxis:
    """The axis of tokens from `low` to `high`, linear or `log`; `moment`: the marker's position in a file, or None on
    screen, where it moves."""

    low: float
    high: float
    log: bool = False
    moment: float | None = None

    @property
    def at(self) -> str:
        """Returns the Vega expression of the moment."""
        return "toNumber(moment)" if self.moment is None else repr(float(self.moment))

    @property
    def now(self) -> str:
        """Returns the Vega filter for the rows of the snapshot nearest to the marker."""
        return f"{self.at} >= datum.since && {self.at} < datum.until"

    @property
    def past(self) -> str:
        """Returns the Vega filter for what was before the marker."""
        return f"datum.tokens <= {self.at}"

    def share(self, tokens: float) -> float:
        """Returns the position of these tokens on the axis, 0 to 1."""
        at = min(self.high, max(self.low, tokens))
        if self.log:
            return math.log(at / self.low) / math.log(self.high / self.low)
        return (at - self.low) / (self.high - self.low)

    def x(self, field: str = "tokens", is_bare: bool = False, **more: Any) -> alt.X:
        """Returns the axis, a bare one without labels and title."""
        kind: Any = "log" if self.log else "linear"
        scale = alt.Scale(type=kind, domain=[self.low, self.high], nice=False, clamp=True)
        axis = alt.Axis(labelExpr=charts.TOKENS, tickCount=5, grid=False, labelFlush=True, labelOverlap=True)
        if is_bare:
            axis, more = alt.Axis(labels=False, ticks=False, tickCount=5, grid=False), {"title": None, **more}
        return alt.X(f"{field}:Q", **{"title": "Tokens trained on", "scale": scale, "axis": axis, **more})


def look_of(runs: Sequence[Any], log: bool, moment: float | None = None) -> TokenAxis:
    """Returns the axis that holds all these runs, up to a round number of tokens; a logarithmic one begins at the first
    snapshot after 0."""
    tokens = [each.trajectory.tokens for each in runs]
    low = min(float(each[each > 0].min()) for each in tokens) if log else 0.0
    return TokenAxis(low, axis_end(max(float(each[-1]) for each in tokens)), log, moment)


def axis_end(tokens: float) -> float:
    """Returns the tokens rounded up to two digits: a run of 9,999,360 would end just before the last label, which is
    not drawn then."""
    unit = 10.0 ** (math.floor(math.log10(max(tokens, 10.0))) - 1)
    return unit * math.ceil(tokens / unit)


def run_panel(
    runs: pd.DataFrame,
    windows: pd.DataFrame,
    run: str,
    look: TokenAxis,
    bare_px: int = 0,
    axis_px: int = 0,
    plot_px: int = PLOT_PX,
) -> charts.Picture:
    """Returns the in-context gain of one run over thin ones of the others; the window is named. `bare_px`: the height
    of a chart without titles, and without axis of tokens but for `axis_px`; `plot_px`: the least width of its plot."""
    ends = min(float(runs["gain"].min()), -0.02), max(float(runs["gain"].max()), 0.1)
    own, labels = windows[windows["run"] == run], tuple(dict.fromkeys(runs["run"]))
    above = names_above(own, look, plot_px)
    of = _run_panel(look, labels, run, ends, bare_px, axis_px)
    return panel(of, runs=rows_on_axis(runs, look).dropna(subset=["gain"]), windows=own, above=above)


@charts.kept
def _run_panel(
    look: TokenAxis, names: tuple[str, ...], run: str, ends: tuple[float, float], bare_px: int, axis_px: int
) -> charts.Template:
    y = quantity("gain", None if bare_px else "In-context gain, nats", domain=list(ends), nice=True)
    base = charts.named_chart("runs").encode(x=look.x(is_bare=bare_px > 0 and not axis_px), y=y)
    others = base.transform_filter(alt.datum.run != run).mark_line(strokeWidth=1, opacity=0.55)
    own = base.transform_filter(alt.datum.run == run)
    colour = by_run(names)
    tooltip = charts.tips("run:N|Run; tokens:Q|Tokens|,.0f; gain:Q|In-context gain, nats|+.3f; loss:Q|Loss, nats|.3f")
    others = others.encode(color=colour)
    later = own.mark_line(strokeWidth=2.5, opacity=LATER).encode(color=colour, tooltip=tooltip)
    line = own.transform_filter(look.past).mark_line(strokeWidth=2.5).encode(color=colour, tooltip=tooltip)
    dot = (
        own.transform_filter(look.now).mark_point(filled=True, size=70, opacity=1).encode(color=colour, tooltip=tooltip)
    )
    name = {"align": alt.ExprRef("datum.align"), "dx": alt.ExprRef("datum.dx"), "baseline": "bottom"}
    above = charts.written(charts.named_chart("above"), 11, **name)
    above = above.encode(x=look.x(), y=alt.value(-3), text="what:N")
    height = STRIP_PX + (bare_px + axis_px or HEIGHT + charts.AXIS_PX)
    return charts.template(height, *window_bands(look), others, later, line, marker(look), dot, above)


def heads_panel(
    heads: pd.DataFrame,
    windows: pd.DataFrame,
    run: str,
    look: TokenAxis,
    score: str,
    n_layers: int,
    bare_px: int = 0,
    axis_px: int = 0,
) -> charts.Picture:
    """Returns a score from 0 to 1 of every head of one run: one line per head, colored by layer. A bare one,
    `bare_px` high, is without titles, and without axis of tokens but for `axis_px`."""
    layers = tuple(sorted({*heads["layer"].tolist()}))
    of = _heads_panel(look, score, n_layers, layers, bare_px, axis_px)
    return panel(of, heads=rows_on_axis(heads, look), windows=windows[windows["run"] == run])


@charts.kept
def _heads_panel(
    look: TokenAxis, score: str, n_layers: int, layers: tuple[int, ...], bare_px: int, axis_px: int
) -> charts.Template:
    y = quantity("value", None if bare_px else TITLES[score], domain=[0, 1])
    x = look.x(is_bare=bare_px > 0 and not axis_px)
    base = charts.named_chart("heads").encode(x=x, y=y, detail="name:N")
    colour = charts.by_layer(n_layers, layers, orient="top-left", direction="horizontal", symbolType="stroke",
                             padding=2, offset=0, symbolStrokeWidth=3, titleOrient="left", columnPadding=6,
                             symbolSize=60, zindex=1, fillColor=alt.ExprRef("background"))  # fmt: skip
    if n_layers == 1:  # all lines have one color
        colour = colour.copy()
        colour["legend"] = None
    tooltip = charts.tips(f"name:N|Head; tokens:Q|Tokens|,.0f; value:Q|{TITLES[score]}|.3f")
    base = base.encode(color=colour, tooltip=tooltip)
    later = base.mark_line(strokeWidth=1.6, opacity=LATER)
    lines = base.transform_filter(look.past).mark_line(strokeWidth=1.6, opacity=0.9)
    height = bare_px + axis_px or HEIGHT + charts.AXIS_PX
    return charts.template(height, *window_bands(look), later, lines, marker(look))


def ablation_panel(heads: pd.DataFrame, windows: pd.DataFrame, run: str, look: TokenAxis, what: str) -> charts.Picture:
    """Returns the effect of ablating each head of one run at the snapshots where it was measured: `gain`, or `along`
    the before-and-after vector; coloured by kind."""
    of = _ablation_panel(look, what, kinds_in(heads, what))
    named_above = heads.sort_values("kind", key=lambda kind: kind != KINDS[2], kind="stable")
    return panel(of, heads=rows_on_axis(named_above, look), windows=windows[windows["run"] == run])


ABLATED = {"gain": "Change of in-context gain, nats", "along": "Along before-and-after, nats"}


@charts.kept
def _ablation_panel(look: TokenAxis, what: str, kinds: tuple[str, ...]) -> charts.Template:
    base = charts.named_chart("heads").transform_filter(f"isValid(datum.{what})")
    y = quantity(what, ABLATED[what]) if kinds else quantity(what, ABLATED[what], domain=[-1, 1])
    base = base.encode(x=look.x(), y=y, detail="name:N")
    colour = by_kind(kinds, symbolType="stroke", symbolStrokeWidth=3)
    tooltip = charts.tips(f"name:N|Head; kind:N|Kind; tokens:Q|Tokens|,.0f; {what}:Q|{ABLATED[what]}|+.3f")
    faint = alt.condition(alt.datum.kind == KINDS[2], alt.value(0.4), alt.value(1))
    lines = base.mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(size=18))
    lines = lines.encode(color=colour, opacity=faint, tooltip=tooltip)
    return charts.template(HEIGHT + charts.AXIS_PX, *window_bands(look), _zero(), lines, marker(look))


def joined(panels: Sequence[charts.Picture], columns: int, width: int, titles: Sequence[str]) -> charts.Picture:
    """Returns the pictures as one, in `columns` columns, each with its own color scales."""
    drawn, datasets = [], {}
    for number, each in enumerate(panels):
        own = {name: part for name, part in each.template.items() if name not in ("config", "$schema", "params")}
        own = _renamed(own, f"{number} ")
        height = each.template.get("height")
        other_px = charts.AXIS_PX + (STRIP_PX if "above" in each.datasets else 0)
        inner = height - other_px if isinstance(height, int | float) else HEIGHT
        drawn.append({**own, "width": width, "height": inner, "title": {"text": titles[number], "anchor": "start"}})
        datasets |= {f"{number} {name}": rows for name, rows in each.datasets.items()}
    heard_of = {"params": panels[0].template["params"]} if panels and "params" in panels[0].template else {}
    spec = {
        "$schema": alt.SCHEMA_URL,
        **heard_of,
        "concat": drawn,
        "columns": columns,
        "spacing": {"row": 18, "column": 26},
        "autosize": {"type": "pad", "contains": "padding"},  # Streamlit's own fits single views alone
    }
    return charts.Picture({**spec, "resolve": {"scale": {"color": "independent"}}, "config": charts.WRITTEN}, datasets)


def _renamed(part: Any, prefix: str) -> Any:
    if isinstance(part, Mapping):
        named = {key: _renamed(value, prefix) for key, value in part.items()}
        if isinstance(part.get("data"), Mapping) and set(part["data"]) == {"name"}:
            named["data"] = {"name": prefix + part["data"]["name"]}
        return named
    return [_renamed(each, prefix) for each in part] if isinstance(part, list) else part


def panel(of: charts.Template, **frames: pd.DataFrame) -> charts.Picture:
    """Returns the picture with the row that the marker needs."""
    return charts.picture(of, one=ONE, **frames)


def extent(values: pd.Series) -> tuple[float, float]:
    """Returns (lowest, highest)."""
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def rows_on_axis(frame: pd.DataFrame, look: TokenAxis) -> pd.DataFrame:
    """Returns the rows that fit the axis: a logarithmic one has no place for 0."""
    return frame[frame["tokens"] >= look.low] if look.log else frame


def quantity(field: str, title: str | None, **scale: Any) -> alt.Y:
    """Returns the axis of a quantity over training."""
    axis = alt.Axis(tickCount=4, minExtent=LABELS_PX, titleLimit=0)
    return alt.Y(f"{field}:Q", title=title, axis=axis, scale=alt.Scale(**scale or {"zero": True}))


def window_bands(look: TokenAxis) -> tuple[alt.Chart, alt.Chart]:
    """Returns the window of the phase change, shaded, and dashed lines where the repeats or the run end."""
    base, no_tip = charts.named_chart("windows").encode(x=look.x("start")), alt.value(None)
    ends = base.transform_filter(MOMENTS).mark_rule(color=GREY, strokeDash=[3, 3], aria=False).encode(tooltip=no_tip)
    return base.mark_rect(color=GREY, opacity=BAND).encode(x2="end:Q", tooltip=no_tip), ends


def names_above(own: pd.DataFrame, look: TokenAxis, plot_px: float) -> pd.DataFrame:
    """Returns one row per name above a plot at least `plot_px` wide: of a run's phase change, or that there is none,
    and of where its repeats or the run end. `tokens`, `align` and `dx`: the side where no two overlap; with too little
    room they are one name, and then the last ones are left out."""
    ends = zip(own["what"].astype(str), own["start"].astype(float), own["end"].astype(float), strict=True)
    words: list[_Name] = [
        (what, [((start + end) / 2, "center", 0), (end, "left", 4), (start, "right", -4)]) for what, start, end in ends
    ]
    if not (own["what"] == PHASE_CHANGE).any():
        words.insert(0, ("no phase change", [(look.low, "left", 0), (look.high, "right", 0)]))
    for n in range(len(words), 0, -1):
        as_one: _Name = " · ".join(what for what, _ in words[:n]), [side for _, sides in words[:n] for side in sides]
        for named in (words[:n], [as_one]):
            for sides in product(*(sides for _, sides in named)):
                names = [(what, *side) for (what, _), side in zip(named, sides, strict=True)]
                if _is_apart(names, look, plot_px):
                    return pd.DataFrame(names, columns=NAMES)
    return pd.DataFrame(columns=NAMES)


def _is_apart(names: Sequence[tuple[str, float, str, int]], look: TokenAxis, plot_px: float) -> bool:
    """Returns whether no two of these names overlap and none leaves the plot."""
    spans = []
    for what, tokens, align, dx in names:
        width = LETTER_PX * len(what)
        start = plot_px * look.share(tokens) + dx - {"left": 0.0, "center": width / 2, "right": width}[align]
        spans.append((start, start + width))
    spans.sort()
    is_inside = spans[0][0] >= -OVERHANG_PX and spans[-1][1] <= plot_px + OVERHANG_PX
    return is_inside and all(one[1] + NAMES_APART_PX <= another[0] for one, another in pairwise(spans))


def _zero() -> alt.Chart:
    return charts.named_chart("one").mark_rule(color=GREY, opacity=0.6, aria=False).encode(y=alt.datum(0))


def marker(look: TokenAxis) -> alt.Chart:
    """Returns the line at the slider's moment."""
    base = charts.named_chart("one").transform_calculate(at=f"clamp({look.at}, {look.low!r}, {look.high!r})")
    rule = base.mark_rule(strokeWidth=1.5, color=GREY, opacity=1).encode(x=look.x("at"), tooltip=alt.value(None))
    return heard(rule, look)


def heard(chart: alt.Chart, look: TokenAxis) -> alt.Chart:
    """Returns the chart, which on screen takes the moment from the field of the page."""
    if look.moment is not None:
        return chart
    return chart.add_params(alt.param(name="moment", value="0", bind=alt.BindDirect(element=f"#{MOMENT}")))


def by_run(names: Sequence[str]) -> alt.Color:
    """Returns the color of a run, the same in every chart."""
    return alt.Color("run:N", scale=alt.Scale(domain=list(names)), legend=None)


def kinds_in(heads: pd.DataFrame, what: str) -> tuple[str, ...]:
    """Returns the kinds of heads with a known `what`, in the order of KINDS."""
    known = {*heads.dropna(subset=[what])["kind"].tolist()}
    return tuple(kind for kind in KINDS if kind in known)


def by_kind(kinds: Sequence[str], **legend: Any) -> alt.Color:
    """Returns the color of a kind of head: previous token, induction, other; the legend names these `kinds`."""
    scale = alt.Scale(domain=list(KINDS), range=[LAYERS[2], LAYERS[4], GREY])
    look: dict[str, Any] = {
        "values": list(kinds),
        "orient": "top",
        "title": None,
        "padding": 0,
        "labelFontSize": 10,
        "columnPadding": 6,
        **legend,
    }
    return alt.Color("kind:N", scale=scale, legend=alt.Legend(**look))


def twins(rows: pd.DataFrame, field: str, title: str) -> charts.Picture:
    """Returns a row per seed of `statements.twin_rows`: a line from the run without loss on copies to its twin."""
    low, high = min(0.0, rows[field].min()), rows[field].max()
    ends = (math.floor(10 * low) / 10, math.ceil(10 * high) / 10)
    return charts.picture(_twins(field, title, *ends, rows["seed"].nunique()), twins=rows)


@charts.kept
def _twins(field: str, title: str, low: float, high: float, n: int) -> charts.Template:
    tooltip = charts.tips(f"seed:N|Seed; copies:N|Run; {field}:Q|{title}|.2f")
    y = alt.Y("seed:N", title="Seed", axis=alt.Axis(labelLimit=160, ticks=False, domain=False))
    x = alt.X(f"{field}:Q", title=title, scale=alt.Scale(domain=[low, high], nice=False), axis=alt.Axis(tickCount=5))
    base = charts.named_chart("twins").encode(x=x, y=y, tooltip=tooltip)
    scale = alt.Scale(domain=list(COPIES), range=[LAYERS[4], GREY])
    legend = alt.Legend(orient="top", title=None, symbolOpacity=1)
    dots = base.mark_point(filled=True, size=110, opacity=1).encode(
        color=alt.Color("copies:N", scale=scale, legend=legend)
    )
    return charts.template(32 * n + charts.AXIS_PX + 30, base.mark_line(stroke=GREY).encode(detail="seed:N"), dots)
