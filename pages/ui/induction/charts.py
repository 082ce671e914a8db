"""Charts of scores by head: DataFrame in, Altair chart out, one row a head (`pages.ui.induction.tables`).

A head that is selected anywhere has a ring; every chart gives what is clicked as the selection `head`.
"""

import altair as alt
import pandas as pd

from engine.errors import UsageError
from pages.ui.shared.charts import AXIS_PX, CELL, head_grid, named_chart, row_height, with_data

TITLES = {
    "prefix_matching": "Prefix matching", "copying": "Copying", "previous_token": "Previous token",
    "duplicate_token": "Duplicate token", "ov_eigen": "OV copying eigenvalues", "qk_trace": "QK trace",
}  # fmt: skip
HELP = {
    "prefix_matching": "Attention from repeated random tokens to what followed their earlier copies: 0 to 1.",
    "copying": "Of what the head raises, the share of the tokens it looks at: -1 to 1; Bansal's variant 0 to 1.",
    "previous_token": "Attention to the token just before, in a story: 0 to 1.",
    "duplicate_token": "Attention from repeated random tokens to their own earlier copies: 0 to 1.",
    "ov_eigen": "By the weights alone: 1 raises the logit of whatever is looked at, -1 lowers it.",
    "qk_trace": "By the weights alone: how well keys that earlier heads wrote about the token before match the query's "
    "own token. No unit; from layer 1 on.",
}
SIGNED = ("copying", "ov_eigen", "qk_trace")
CORNER_PREFIX = 0.5  # Olsson et al. name no threshold: half of the attention, and several times the copying of chance
CORNER_COPYING = {True: -0.5, False: 0.1}  # signed scores (Olsson; chance is -0.84) or shares (Bansal)
RING = "#d9480f"


def score_map(frame: pd.DataFrame, score: str) -> alt.LayerChart:
    """Layers x heads, coloured by one score on a scale of its own."""
    title, n_layers = TITLES[score], int(frame["layer"].max()) + 1
    height = row_height(n_layers)
    base = head_grid(
        alt.Tooltip(f"{score}:Q", title=title, format=".3~g"),
        alt.Tooltip(f"{score}_se:Q", title="standard error", format=".2~g"),
        alt.Tooltip(f"{score}_rank:Q", title="Rank (1 = highest)"),
    )
    largest = float(frame[score].abs().max()) or 1.0
    if score == "qk_trace":
        scale = alt.Scale(domain=[-largest, largest], scheme="redblue", domainMid=0)
    elif score in SIGNED and frame[score].min() < 0:
        scale = alt.Scale(domain=[-1, 1], scheme="redblue", domainMid=0)
    else:
        scale = alt.Scale(domain=[0, 1])
    legend = alt.Legend(title=None, format=".2~g", tickCount=3, gradientLength=max(60, height * n_layers))
    cells = base.mark_rect(**CELL, cursor="pointer", invalid="show").encode(
        # not the other way round: Vega-Lite would then paint what is undefined as 0
        color=alt.condition(
            f"!isValid(datum['{score}'])", alt.value("#8a949e22"), alt.Color(f"{score}:Q", scale=scale, legend=legend)
        )
    )
    ring = base.transform_filter("datum.selected").mark_rect(filled=False, stroke=RING, strokeWidth=2.5)
    chart = alt.layer(cells.add_params(_click()), ring).properties(height=height * n_layers + AXIS_PX)
    return with_data(chart, heads=frame)


def is_signed(frame: pd.DataFrame) -> bool:
    """Whether copying is Olsson's score, from -1 to 1, and not a share."""
    return bool((frame["copying"] < 0).any())


def in_corner(frame: pd.DataFrame) -> pd.Series:
    """Which heads both match prefixes and copy."""
    return (frame["prefix_matching"] >= CORNER_PREFIX) & (frame["copying"] >= CORNER_COPYING[is_signed(frame)])


def induction_scatter(frame: pd.DataFrame) -> alt.LayerChart:
    """Prefix matching against copying, one point a head, coloured by depth, the induction corner marked."""
    lowest = -1 if is_signed(frame) else 0
    base = named_chart("heads").encode(
        x=alt.X("prefix_matching:Q", title="Prefix matching", scale=alt.Scale(domain=[0, 1])),
        y=alt.Y("copying:Q", title="Copying", scale=alt.Scale(domain=[lowest, 1])),
        tooltip=[
            alt.Tooltip("name:N", title="Head"),
            alt.Tooltip("prefix_matching:Q", title="Prefix matching", format=".3f"),
            alt.Tooltip("copying:Q", title="Copying", format=".3f"),
        ],
    )
    points = base.mark_point(filled=True, size=90, opacity=0.85, cursor="pointer").encode(
        color=alt.Color("layer:O", title="Layer", scale=alt.Scale(scheme="viridis"), legend=alt.Legend(columns=2))
    )
    names = base.transform_filter("datum.selected || datum.in_corner").mark_text(align="left", dx=7, dy=-5, fontSize=11)
    ring = base.transform_filter("datum.selected").mark_point(filled=False, size=220, stroke=RING, strokeWidth=2.5)
    corner = named_chart("corner").mark_rect(opacity=0.08, color=RING).encode(
        x="x:Q", x2="x2:Q", y="y:Q", y2="y2:Q", tooltip=alt.value(None)
    )  # fmt: skip
    words = named_chart("corner").mark_text(align="right", baseline="top", dx=-5, dy=5, color=RING).encode(
        x="x2:Q", y="y2:Q", text=alt.value("induction corner")
    )  # fmt: skip
    chart = alt.layer(corner, words, points.add_params(_click()), ring, names.encode(text="name:N"))
    edges = pd.DataFrame({"x": [CORNER_PREFIX], "x2": [1.0], "y": [CORNER_COPYING[is_signed(frame)]], "y2": [1.0]})
    return with_data(chart.properties(height=330), heads=frame, corner=edges)


def depth_strip(frame: pd.DataFrame, score: str) -> alt.LayerChart:
    """One score against relative depth, with the mean of each layer."""
    x = alt.X("depth:Q", title="Depth (0 = first layer, 1 = last)", scale=alt.Scale(domain=[-0.03, 1.03], nice=False))
    y = alt.Y(f"{score}:Q", title=TITLES[score])
    base = named_chart("heads").encode(x=x)
    tooltip = [alt.Tooltip("name:N", title="Head"), alt.Tooltip(f"{score}:Q", title=TITLES[score], format=".3~g")]
    points = base.mark_point(filled=True, size=60, opacity=0.65, cursor="pointer").encode(y=y, tooltip=tooltip)
    means = base.mark_line(strokeWidth=2, opacity=0.6, point=False).encode(y=alt.Y(f"mean({score}):Q"))
    ring = base.transform_filter("datum.selected").mark_point(filled=False, size=160, stroke=RING, strokeWidth=2.5)
    return with_data(
        alt.layer(means, points.add_params(_click()), ring.encode(y=y)).properties(height=250), heads=frame
    )


def distribution(frame: pd.DataFrame, score: str) -> alt.LayerChart:
    """How many heads have which score."""
    bars = named_chart("heads").mark_bar().encode(
        x=alt.X(f"{score}:Q", bin=alt.Bin(maxbins=24), title=TITLES[score]),
        y=alt.Y("count():Q", title="Heads"),
        tooltip=[alt.Tooltip("count():Q", title="Heads")],
    )  # fmt: skip
    return with_data(alt.layer(bars).properties(height=250), heads=frame)


def example_pattern() -> alt.LayerChart:
    """What an ideal induction head looks at, on four tokens that come twice."""
    words = ["the", "red", "fox", "ran"] * 2
    names = [f"{position} {word}" for position, word in enumerate(words, start=1)]
    cells = []
    for d, destination in enumerate(names):
        for s, source in enumerate(names[: d + 1]):
            strong = s > 0 and d >= 4 and words[s - 1] == words[d] and s <= d - 3
            cells.append({"looks": destination, "at": source, "attention": 1.0 if strong else 0.0,
                          "what": f"at {destination}: looks at {source}" if strong else ""})  # fmt: skip
    base = named_chart("cells").encode(
        x=alt.X("at:N", sort=names, title="looks at", axis=alt.Axis(labelAngle=-40)),
        y=alt.Y("looks:N", sort=names, title="token"),
    )
    colour = alt.Color("attention:Q", scale=alt.Scale(domain=[0, 1]), legend=None)
    rect = base.mark_rect(stroke="#8a949e", strokeOpacity=0.45).encode(color=colour, tooltip="what:N")
    return with_data(alt.layer(rect).properties(height=230), cells=pd.DataFrame(cells))


def retained_chart(frame: pd.DataFrame, score: str) -> alt.LayerChart:
    """Share of a score's total left against heads pruned; `frame`: line, level, left, low, high, kind.

    Kinds: `task` (thin lines), `chosen`, `aggregate`, `reversed`, `random` (mean with its band).
    """
    kinds = ["chosen", "aggregate", "random", "reversed", "task"]
    unknown = set(frame["kind"]) - set(kinds)
    if unknown:
        raise UsageError(f"kinds of lines {sorted(unknown)} are unknown")
    x = alt.X("level:Q", title="Heads pruned", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("left:Q", title=f"{TITLES[score]} left", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    base = named_chart("lines").encode(x=x, detail="line:N")
    colour = alt.Color("kind:N", title=None, scale=alt.Scale(domain=kinds), legend=alt.Legend(orient="bottom"))
    band = base.transform_filter("datum.kind == 'random'").mark_area(opacity=0.18).encode(
        y=alt.Y("low:Q", title=f"{TITLES[score]} left"), y2="high:Q", color=colour
    )  # fmt: skip
    tooltip = [
        alt.Tooltip("line:N", title="Ranking"),
        alt.Tooltip("level:Q", title="Pruned", format=".0%"),
        alt.Tooltip("left:Q", title="Left", format=".1%"),
    ]
    thin = base.transform_filter("datum.kind == 'task'").mark_line(strokeWidth=1, opacity=0.4)
    thick = base.transform_filter("datum.kind != 'task'").mark_line(strokeWidth=2.5)
    layers = [band, *(lines.encode(y=y, color=colour, tooltip=tooltip) for lines in (thin, thick))]
    return with_data(alt.layer(*layers).properties(height=300), lines=frame)


def _click() -> alt.Parameter:
    return alt.selection_point(name="head", fields=["layer", "head"])
