"""Charts over training: takes a DataFrame, returns a picture, all with the same axis of tokens, the window shaded and a
marker.

On screen the marker listens to a field of the page (`MOMENT`), which the slider writes while it moves: it moves in the
browser, with no run of the page. A file shows its last position.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from pages.ui.figures import charts
from pages.ui.figures.colours import GREY, LAYERS, MARK
from pages.ui.figures.induction_scores import TITLES
from pages.ui.training.tables import KINDS

MOMENT = "training-moment"  # the id of a field in the page with the tokens at the slider's position
HEIGHT, BAND = 150, 0.13
ONE = pd.DataFrame({"one": [0]})


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

    def x(self, field: str = "tokens", **more: Any) -> alt.X:
        """Returns the axis."""
        kind: Any = "log" if self.log else "linear"
        scale = alt.Scale(type=kind, domain=[self.low, self.high], nice=False, clamp=True)
        axis = alt.Axis(labelExpr=charts.TOKENS, tickCount=5, grid=False, labelFlush=True, labelOverlap=True)
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


OF_RUNS = {"score": "In-context score, nats", "loss": "Loss, nats"}


def run_panel(
    runs: pd.DataFrame, windows: pd.DataFrame, run: str, look: TokenAxis, column: str = "score"
) -> charts.Picture:
    """Returns the in-context score (`score`) or the `loss` of one run over those of the others in gray."""
    lowest, highest = float(runs[column].min()), float(runs[column].max())
    ends = (min(lowest, -0.1), max(highest, 0.02)) if column == "score" else (lowest, highest)
    of = _run_panel(look, tuple(dict.fromkeys(runs["run"])), run, column, ends)
    return _picture(of, runs=_rows_on_axis(runs, look).dropna(subset=[column]), windows=windows[windows["run"] == run])


@charts.kept
def _run_panel(
    look: TokenAxis, names: tuple[str, ...], run: str, column: str, ends: tuple[float, float]
) -> charts.Template:
    y = _y(column, OF_RUNS[column], domain=list(ends), nice=True)
    x = look.x() if look.moment is not None else look.x(title=None)  # on screen the chart below has the same axis
    base = charts.named_chart("runs").encode(x=x, y=y)
    others = base.transform_filter(alt.datum.run != run)
    others = others.mark_line(color=GREY, strokeWidth=1, opacity=0.55).encode(detail="run:N")
    own = base.transform_filter(alt.datum.run == run)
    colour = by_run(names, None)
    tooltip = charts.tips("run:N|Run; tokens:Q|Tokens|,.0f; score:Q|In-context score, nats|+.3f; loss:Q|Loss, nats|.3f")
    line = own.mark_line(strokeWidth=2.5).encode(color=colour, tooltip=tooltip)
    dot = (
        own.transform_filter(look.now).mark_point(filled=True, size=70, opacity=1).encode(color=colour, tooltip=tooltip)
    )
    height = HEIGHT + charts.AXIS_PX - (25 if look.moment is None else 0)
    return charts.template(height, _band(look), others, line, _marker(look), dot)


def heads_panel(
    heads: pd.DataFrame, windows: pd.DataFrame, run: str, look: TokenAxis, score: str, n_layers: int
) -> charts.Picture:
    """Returns one of the six scores of every head of one run: one line per head, colored by layer."""
    free = score in ("qk_trace", "ov_eigen") and bool(heads["value"].notna().any())
    layers = tuple(sorted({*heads["layer"].tolist()}))
    of = _heads_panel(look, score, n_layers, layers, free)
    return _picture(of, heads=_rows_on_axis(heads, look), windows=windows[windows["run"] == run])


@charts.kept
def _heads_panel(look: TokenAxis, score: str, n_layers: int, layers: tuple[int, ...], free: bool) -> charts.Template:
    y = _y("value", TITLES[score]) if free else _y("value", TITLES[score], domain=[0, 1])
    base = charts.named_chart("heads").encode(x=look.x(), y=y, detail="name:N")
    colour = charts.by_layer(n_layers, layers, orient="top", direction="horizontal", symbolType="stroke", padding=0,
                             offset=2, symbolStrokeWidth=3, titleOrient="left")  # fmt: skip
    tooltip = charts.tips(f"name:N|Head; tokens:Q|Tokens|,.0f; value:Q|{TITLES[score]}|.3f")
    lines = base.mark_line(strokeWidth=1.6, opacity=0.9).encode(color=colour, tooltip=tooltip)
    return charts.template(HEIGHT + charts.AXIS_PX, _band(look), lines, _marker(look))


def ablation_panel(heads: pd.DataFrame, windows: pd.DataFrame, run: str, look: TokenAxis, what: str) -> charts.Picture:
    """Returns the effect of ablating each head of one run at the snapshots where it was measured: `score`, or `along`
    the before-and-after vector; coloured by kind."""
    of = _ablation_panel(look, what, kinds_in(heads, what))
    named_above = heads.sort_values("kind", key=lambda kind: kind != KINDS[2], kind="stable")
    return _picture(of, heads=_rows_on_axis(named_above, look), windows=windows[windows["run"] == run])


ABLATED = {"score": "Change of in-context score, nats", "along": "Along before-and-after, nats"}


@charts.kept
def _ablation_panel(look: TokenAxis, what: str, kinds: tuple[str, ...]) -> charts.Template:
    base = charts.named_chart("heads").transform_filter(f"isValid(datum.{what})")
    y = _y(what, ABLATED[what]) if kinds else _y(what, ABLATED[what], domain=[-1, 1])
    base = base.encode(x=look.x(), y=y, detail="name:N")
    colour = by_kind(kinds, symbolType="stroke", symbolStrokeWidth=3)
    tooltip = charts.tips(f"name:N|Head; kind:N|Kind; tokens:Q|Tokens|,.0f; {what}:Q|{ABLATED[what]}|+.3f")
    faint = alt.condition(alt.datum.kind == KINDS[2], alt.value(0.4), alt.value(1))
    lines = base.mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(size=18))
    lines = lines.encode(color=colour, opacity=faint, tooltip=tooltip)
    return charts.template(HEIGHT + charts.AXIS_PX, _band(look), _zero(), lines, _marker(look))


def curves(
    runs: pd.DataFrame, windows: pd.DataFrame, look: TokenAxis, column: str, title: str, height: int = 210
) -> charts.Picture:
    """Returns one quantity of every run over training, one line per run."""
    names = tuple(dict.fromkeys(runs["run"]))
    known = _rows_on_axis(runs, look).dropna(subset=[column])
    drawn = tuple(dict.fromkeys(known["run"]))
    of = _curves(look, names, drawn, column, title, _ends(known[column]), height)
    return _picture(of, runs=known, windows=windows)


@charts.kept
def _curves(
    look: TokenAxis,
    names: tuple[str, ...],
    drawn: tuple[str, ...],
    column: str,
    title: str,
    ends: tuple[float, float],
    height: int,
) -> charts.Template:
    legend = alt.Legend(values=list(drawn), orient="bottom", title=None, labelLimit=0, columns=1, symbolType="stroke",
                        symbolStrokeWidth=4, symbolOpacity=1)  # fmt: skip
    colour = by_run(names, legend)
    base = charts.named_chart("runs").encode(
        x=look.x(), y=_y(column, title, domain=list(ends), nice=True), color=colour
    )
    tooltip = charts.tips(f"run:N|Run; tokens:Q|Tokens|,.0f; {column}:Q|{title}|.3f")
    lines = base.mark_line(strokeWidth=2).encode(tooltip=tooltip)
    now = base.transform_filter(look.now)
    dots = now.mark_point(filled=True, size=60, opacity=1).encode(tooltip=tooltip)
    bands = charts.named_chart("windows").mark_rect(opacity=BAND).encode(
        x=look.x("start"), x2="end:Q", color=colour, tooltip=charts.tips("run:N|Phase change of"))  # fmt: skip
    return charts.template(height + charts.AXIS_PX + 22 * len(drawn), bands, lines, _marker(look), dots)


def tokens_panel(frame: pd.DataFrame, windows: pd.DataFrame, run: str, look: TokenAxis) -> charts.Picture:
    """Returns the loss of chosen tokens of a passage over the training of one run."""
    own = frame[frame["run"] == run]
    of = _tokens_panel(look, tuple(dict.fromkeys(frame["token"])), tuple(dict.fromkeys(own["token"])))
    return _picture(of, tokens=_rows_on_axis(own, look), windows=windows[windows["run"] == run])


@charts.kept
def _tokens_panel(look: TokenAxis, tokens: tuple[str, ...], drawn: tuple[str, ...]) -> charts.Template:
    legend = alt.Legend(values=list(drawn), orient="top", title=None, labelLimit=0, symbolType="stroke",
                        symbolStrokeWidth=3, padding=0)  # fmt: skip
    colour = alt.Color("token:N", scale=alt.Scale(domain=list(tokens)), legend=legend)
    base = charts.named_chart("tokens").encode(x=look.x(), y=_y("loss", "Loss, nats"), color=colour)
    tooltip = charts.tips("token:N|Token; tokens:Q|Tokens trained on|,.0f; loss:Q|Loss, nats|.3f")
    lines = base.mark_line(strokeWidth=2).encode(tooltip=tooltip)
    return charts.template(HEIGHT + charts.AXIS_PX, _band(look), lines, _marker(look))


def heat_panel(
    cells: pd.DataFrame, windows: pd.DataFrame, run: str, look: TokenAxis, column: str = "slope"
) -> charts.Picture:
    """Returns index in the text (logarithmic) by tokens: `slope`, d loss / d ln(index), -0.3 to 0.3, or `loss`."""
    ends = (-0.3, 0.3) if column == "slope" else _ends(cells["loss"])
    indices = (int(cells["first"].min()), int(cells["last"].max())) if len(cells) else (1, 2)
    of = _heat_panel(look, column, *indices, ends)
    shown = cells.assign(since=cells["since"].clip(lower=look.low), until=cells["until"].clip(upper=look.high))
    return _picture(of, cells=shown[shown["until"] > shown["since"]], windows=windows[windows["run"] == run])


@charts.kept
def _heat_panel(look: TokenAxis, column: str, first: int, last: int, ends: tuple[float, float]) -> charts.Template:
    is_slope = column == "slope"
    scale = (
        charts.around_zero(ends[1], clamp=True) if is_slope else alt.Scale(domain=list(ends), clamp=True, reverse=True)
    )
    title = "d loss / d ln(index), nats" if is_slope else "Loss, nats"
    legend = alt.Legend(title="nats / ln(index)" if is_slope else "nats", orient="top", direction="horizontal",
                        gradientLength=90, gradientThickness=8,
                        titleOrient="left", tickCount=3, padding=0, titleLimit=0)  # fmt: skip
    reach = alt.Scale(type="log", domain=[max(1, first), last], nice=False, clamp=True)
    axis = alt.Axis(grid=False, values=[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000], format="d")
    y = alt.Y("first:Q", title="Token index", scale=reach, axis=axis)
    tooltip = charts.tips(
        f"tokens:Q|Tokens trained on|,.0f; first:Q|Index from|d; last:Q|to|d; {column}:Q|{title}|+.3f"
    )
    cells = charts.named_chart("cells").mark_rect().encode(
        x=look.x("since"), x2="until:Q", y=y, y2="last:Q", tooltip=tooltip,
        color=alt.Color(f"{column}:Q", scale=scale, legend=legend))  # fmt: skip
    edges = charts.named_chart("windows")
    edge = [edges.mark_rule(color=MARK, strokeDash=[4, 3]).encode(x=look.x(end)) for end in ("start", "end")]
    return charts.template(HEIGHT + 20 + charts.AXIS_PX, cells, *edge, _marker(look))


def joined(panels: Sequence[charts.Picture], columns: int, width: int, titles: Sequence[str] = ()) -> charts.Picture:
    """Returns the pictures as one, in `columns` columns, each with its own color scales."""
    drawn, datasets = [], {}
    for number, each in enumerate(panels):
        own = {name: part for name, part in each.template.items() if name not in ("config", "$schema", "params")}
        own = _renamed(own, f"{number} ")
        height = each.template.get("height")
        inner = (height - charts.AXIS_PX) if isinstance(height, int | float) else HEIGHT
        title = (
            {"title": {"text": titles[number], "anchor": "start"}} if number < len(titles) and titles[number] else {}
        )
        drawn.append({**own, "width": width, "height": inner, **title})
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


def _picture(of: charts.Template, **frames: pd.DataFrame) -> charts.Picture:
    return charts.picture(of, one=ONE, **frames)


def _ends(values: pd.Series) -> tuple[float, float]:
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def _rows_on_axis(frame: pd.DataFrame, look: TokenAxis) -> pd.DataFrame:
    """Returns the rows that fit the axis: a logarithmic one has no place for 0."""
    return frame[frame["tokens"] >= look.low] if look.log else frame


def _y(field: str, title: str, **scale: Any) -> alt.Y:
    axis = alt.Axis(tickCount=4, minExtent=34, titleLimit=0)
    return alt.Y(f"{field}:Q", title=title, axis=axis, scale=alt.Scale(**scale or {"zero": True}))


def _band(look: TokenAxis) -> alt.Chart:
    """Returns the window of the phase change."""
    base = charts.named_chart("windows").mark_rect(color=MARK, opacity=BAND)
    return base.encode(x=look.x("start"), x2="end:Q", tooltip=alt.value(None))


def _zero() -> alt.Chart:
    return charts.named_chart("one").mark_rule(color=GREY, opacity=0.6, aria=False).encode(y=alt.datum(0))


def _marker(look: TokenAxis) -> alt.Chart:
    """Returns the line at the slider's moment."""
    base = charts.named_chart("one").transform_calculate(at=f"clamp({look.at}, {look.low!r}, {look.high!r})")
    rule = base.mark_rule(strokeWidth=1.5, color=GREY, opacity=1).encode(x=look.x("at"), tooltip=alt.value(None))
    return heard(rule, look)


def heard(chart: alt.Chart, look: TokenAxis) -> alt.Chart:
    """Returns the chart, which on screen takes the moment from the field of the page."""
    if look.moment is not None:
        return chart
    return chart.add_params(alt.param(name="moment", value="0", bind=alt.BindDirect(element=f"#{MOMENT}")))


def by_run(names: Sequence[str], legend: alt.Legend | None) -> alt.Color:
    """Returns the color of a run, the same in every chart."""
    return alt.Color("run:N", scale=alt.Scale(domain=list(names)), legend=legend)


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
