"""Charts of scores by head: DataFrame in, picture out, one row a head (`pages.ui.induction.tables`).

A head that is selected anywhere has a ring; every chart gives what is clicked as the selection `head`.
"""

import altair as alt
import pandas as pd

from engine.errors import UsageError
from pages.ui.shared import charts
from pages.ui.shared.colours import GREY, MARK, UNDEFINED

TITLES = {
    "prefix_matching": "Prefix matching",
    "copying": "Copying",
    "previous_token": "Previous token",
    "duplicate_token": "Duplicate token",
    "ov_eigen": "OV copying eigenvalues",
    "qk_trace": "QK trace",
}
HELP = {
    "prefix_matching": "Attention from repeated random tokens to what followed their earlier copies: 0 to 1.",
    "copying": "Of what the head raises, the share of the tokens it looks at: -1 to 1; Bansal's variant 0 to 1.",
    "previous_token": "Attention to the token just before, in a story: 0 to 1.",
    "duplicate_token": "Attention from repeated random tokens to their own earlier copies: 0 to 1.",
    "ov_eigen": "By the weights alone: 1 raises the logit of whatever is looked at, -1 lowers it.",
    "qk_trace": "By the weights alone: how well keys that earlier heads wrote about the token before match the query's "
    "own token. No unit; from layer 1 on.",
}
KINDS = ["chosen", "aggregate", "random", "reversed", "task"]  # of lines
SIGNED = ("copying", "ov_eigen", "qk_trace")
CORNER_PREFIX = 0.5  # Olsson et al. name no threshold: half of the attention, and several times the copying of chance
CORNER_COPYING = {True: -0.5, False: 0.1}  # signed scores (Olsson; chance is -0.84) or shares (Bansal)


def score_map(frame: pd.DataFrame, score: str) -> charts.Picture:
    """Layers x heads, coloured by one score on a scale of its own."""
    reach = (float(frame[score].abs().max()) or 1.0) if score == "qk_trace" else 1.0
    signed = score == "qk_trace" or (score in SIGNED and bool(frame[score].min() < 0))
    return charts.picture(_score_map(score, int(frame["layer"].max()) + 1, signed, reach), heads=frame)


@charts.kept
def _score_map(score: str, n_layers: int, signed: bool, reach: float) -> charts.Template:
    height = charts.row_height(n_layers)
    base = charts.head_grid(
        f"{score}:Q|{TITLES[score]}|.3~g", f"{score}_se:Q|standard error|.2~g", f"{score}_rank:Q|Rank (1 = highest)"
    )
    scale = charts.around_zero(reach) if signed else alt.Scale(domain=[0, 1])
    legend = alt.Legend(title=None, format=".2~g", tickCount=3, gradientLength=max(60, height * n_layers))
    colour = alt.Color(f"{score}:Q", scale=scale, legend=legend)
    # not the other way round: Vega-Lite would then paint what is undefined as 0
    known = alt.condition(f"!isValid(datum['{score}'])", alt.value(UNDEFINED), colour)
    cells = base.mark_rect(**charts.CELL, cursor="pointer", invalid="show").encode(color=known).add_params(_click())
    ring = base.transform_filter("datum.selected").mark_rect(filled=False, stroke=MARK, strokeWidth=2.5)
    return charts.template(height * n_layers + charts.AXIS_PX, cells, *charts.crosses(base, height), ring)


def is_signed(frame: pd.DataFrame) -> bool:
    """Whether copying is Olsson's score, from -1 to 1, and not a share."""
    return bool((frame["copying"] < 0).any())


def in_corner(frame: pd.DataFrame) -> pd.Series:
    """Which heads both match prefixes and copy."""
    return (frame["prefix_matching"] >= CORNER_PREFIX) & (frame["copying"] >= CORNER_COPYING[is_signed(frame)])


def induction_scatter(frame: pd.DataFrame) -> charts.Picture:
    """Prefix matching against copying, one point a head, coloured by depth, the induction corner marked."""
    signed = is_signed(frame)
    corner = pd.DataFrame({"x": [CORNER_PREFIX], "x2": [1.0], "y": [CORNER_COPYING[signed]], "y2": [1.0]})
    return charts.picture(
        _induction_scatter(-1 if signed else 0, int(frame["layer"].max()) + 1), heads=frame, corner=corner
    )


@charts.kept
def _induction_scatter(lowest: int, n_layers: int) -> charts.Template:
    base = charts.named_chart("heads").encode(
        x=alt.X("prefix_matching:Q", title="Prefix matching", scale=alt.Scale(domain=[0, 1])),
        y=alt.Y("copying:Q", title="Copying", scale=alt.Scale(domain=[lowest, 1])),
        tooltip=charts.tips("name:N|Head; prefix_matching:Q|Prefix matching|.3f; copying:Q|Copying|.3f"),
    )
    points = base.mark_point(filled=True, size=90, opacity=0.85, cursor="pointer").encode(
        color=charts.by_layer(n_layers)
    )
    named = base.transform_filter("datum.selected || datum.in_corner")
    names = charts.written(named, 11, align="left", dx=7, dy=-5)
    ring = base.transform_filter("datum.selected").mark_point(filled=False, size=220, stroke=MARK, strokeWidth=2.5)
    corner = charts.named_chart("corner").mark_rect(opacity=0.08, color=MARK)
    corner = corner.encode(x="x:Q", x2="x2:Q", y="y:Q", y2="y2:Q", tooltip=alt.value(None))
    words = charts.written(charts.named_chart("corner"), 11, align="right", baseline="top", dx=-5, dy=5)
    words = words.encode(x="x2:Q", y="y2:Q", text=alt.value("induction corner"))
    return charts.template(330, corner, words, points.add_params(_click()), ring, names.encode(text="name:N"))


def depth_strip(frame: pd.DataFrame, score: str) -> charts.Picture:
    """One score against relative depth, with the mean of each layer."""
    return charts.picture(_depth_strip(score), heads=frame)


@charts.kept
def _depth_strip(score: str) -> charts.Template:
    x = alt.X("depth:Q", title="Depth (0 = first layer, 1 = last)", scale=alt.Scale(domain=[-0.03, 1.03], nice=False))
    y = alt.Y(f"{score}:Q", title=TITLES[score])
    base = charts.named_chart("heads").encode(x=x)
    tooltip = charts.tips("name:N|Head", f"{score}:Q|{TITLES[score]}|.3~g")
    points = base.mark_point(filled=True, size=60, opacity=0.65, cursor="pointer").encode(y=y, tooltip=tooltip)
    means = base.mark_line(strokeWidth=2, opacity=0.6, point=False).encode(y=alt.Y(f"mean({score}):Q"))
    ring = base.transform_filter("datum.selected").mark_point(filled=False, size=160, stroke=MARK, strokeWidth=2.5)
    return charts.template(250, means, points.add_params(_click()), ring.encode(y=y))


def distribution(frame: pd.DataFrame, score: str) -> charts.Picture:
    """How many heads have which score."""
    x = alt.X(f"{score}:Q", bin=alt.Bin(maxbins=24), title=TITLES[score])
    y, tooltip = alt.Y("count():Q", title="Heads"), charts.tips("count():Q|Heads")
    return charts.picture(
        charts.template(250, charts.named_chart("heads").mark_bar().encode(x=x, y=y, tooltip=tooltip)), heads=frame
    )


def example_pattern() -> charts.Picture:
    """What an ideal induction head looks at, on four tokens that come twice."""
    words = ["the", "red", "fox", "ran"] * 2
    names = [f"{position} {word}" for position, word in enumerate(words, start=1)]
    cells = []
    for d, destination in enumerate(names):
        for s, source in enumerate(names[: d + 1]):
            strong = s > 0 and d >= 4 and words[s - 1] == words[d] and s <= d - 3
            what = f"at {destination}: looks at {source}" if strong else ""
            cells.append({"looks": destination, "at": source, "attention": float(strong), "what": what})
    base = charts.named_chart("cells").encode(
        x=alt.X("at:N", sort=names, title="looks at", axis=alt.Axis(labelAngle=-40)),
        y=alt.Y("looks:N", sort=names, title="token"),
    )
    colour = alt.Color("attention:Q", scale=alt.Scale(domain=[0, 1]), legend=None)
    rect = base.mark_rect(stroke=GREY, strokeOpacity=0.45).encode(color=colour, tooltip="what:N")
    return charts.picture(charts.template(230, rect), cells=pd.DataFrame(cells))


def retained_chart(frame: pd.DataFrame, score: str) -> charts.Picture:
    """Share of a score's total left against heads pruned; `frame`: line, level, left, low, high, kind.

    Kinds: `task` (thin lines), `chosen`, `aggregate`, `reversed`, `random` (mean with its band).
    """
    unknown = set(frame["kind"]) - set(KINDS)
    if unknown:
        raise UsageError(f"kinds of lines {sorted(unknown)} are unknown")
    return charts.picture(_retained_chart(score), lines=frame)


@charts.kept
def _retained_chart(score: str) -> charts.Template:
    x = alt.X("level:Q", title="Heads pruned", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("left:Q", title=f"{TITLES[score]} left", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    base = charts.named_chart("lines").encode(x=x, detail="line:N")
    colour = alt.Color("kind:N", title=None, scale=alt.Scale(domain=KINDS), legend=alt.Legend(orient="bottom"))
    band = base.transform_filter("datum.kind == 'random'").mark_area(opacity=0.18)
    band = band.encode(y=alt.Y("low:Q", title=f"{TITLES[score]} left"), y2="high:Q", color=colour)
    tooltip = charts.tips("line:N|Ranking", "level:Q|Pruned|.0%", "left:Q|Left|.1%")
    thin = base.transform_filter("datum.kind == 'task'").mark_line(strokeWidth=1, opacity=0.4)
    thick = base.transform_filter("datum.kind != 'task'").mark_line(strokeWidth=2.5)
    layers = [band, *(lines.encode(y=y, color=colour, tooltip=tooltip) for lines in (thin, thick))]
    return charts.template(300, *layers)


def _click() -> alt.Parameter:
    return alt.selection_point(name="head", fields=["layer", "head"])
