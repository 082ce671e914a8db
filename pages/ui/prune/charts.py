"""The chart of the Prune screen: accuracy over levels. Accuracies and levels are shares (0-1) in the frames and percent
on the axes."""

import json
from collections.abc import Sequence

import altair as alt
import pandas as pd

from engine.views.colors import MARK, palette
from pages.ui.figures import charts

SECOND = "second"  # the second model's line
OTHER, RANDOM = "other task", "random orders"
DOMAIN = palette(
    pruned="measured", now="now", full="full model", second=SECOND, estimate="estimate", other=OTHER, random=RANDOM,
    chance="chance",
)  # fmt: skip
PATTERNS = {"full model": [7, 4], "chance": [2, 4], "estimate": [5, 4]}
DASHED = alt.Scale(domain=[*DOMAIN, ""], range=[PATTERNS.get(series, [1, 0]) for series in [*DOMAIN, ""]])
DASHES = alt.StrokeDash("line:N", scale=DASHED, legend=None)  # Vega joins legends of the same names, so it has one more
LEVELS = [level / 10 for level in range(11)]
NAMES_PX = 36  # to the right of the curve, for the names of the lines; on screen Streamlit adds it twice
MOST_NAMED = 2  # other tasks in the legend
GAP = 0.2  # between two measured levels, above which no line claims what is in between
NONE = pd.DataFrame(columns=["level", "estimated", "low", "high", "trusted"])
Pair = tuple[pd.DataFrame, pd.DataFrame]
NEITHER: Pair = (NONE, NONE)
NOTHING_AROUND: Pair = (pd.DataFrame(columns=["task", "level", "acc"]), pd.DataFrame(columns=["level", "low", "high"]))


def accuracy_curve(
    points: pd.DataFrame,
    now: pd.DataFrame,
    full: float | None,
    chance: float,
    x_title: str,
    dashed: Pair = NEITHER,
    around: Pair = NOTHING_AROUND,
    first_loss: Sequence[float] = (),
) -> charts.Picture:
    """Returns accuracy against pruning level, with 95% intervals; `points` and `now` have level, acc, low, high, n,
    pruned.

    `now` is the current position: one row, or none before the first measurement there. `dashed` are estimates, along
    the curve and where the slider moves (level, estimated, low, high, trusted), in a series of their own. Of two models
    both frames have also `series` (measured, now or SECOND) and `model`. `around`: the curves of other tasks (task,
    level, acc), and the range of random orders (level, low, high). `first_loss`: the level to mark, or none. A legend
    names models, other tasks and random orders.
    """
    lines = [("chance", chance, full is not None and chance > full)]
    lines += [] if full is None else [("full model", full, chance <= full)]
    named = pd.DataFrame(lines, columns=["series", "acc", "above"]).assign(end=1.0)
    named["line"] = named["series"]
    legend = _models(pd.concat([points, now])) if "model" in points else {}
    if not legend:
        points, now = points.assign(series="measured"), now.assign(series="now")
    legend |= _names_around(*around)
    points = points.assign(shape=points["series"]).sort_values(["series", "level"])
    through = _through(points, now)
    along, hand = (frame.assign(series="estimate", line="estimate") for frame in dashed)
    others, band = (frame.assign(series=series) for frame, series in zip(around, (OTHER, RANDOM), strict=True))
    frames = {"points": points, "through": through, "now": now, "lines": named, "estimates": along, "hand": hand}
    frames |= {"others": others, "band": band, "break": pd.DataFrame({"level": [*first_loss], "top": 1.0})}
    return charts.picture(_curve(x_title, "model" in points, tuple(legend.items())), **frames)


def _through(points: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Returns what the lines go through: the measured levels, and the current position if it is measured in full."""
    here = now[now["n"] >= points["n"].max()] if len(points) else now.head(0)
    rows = pd.concat([points, here.assign(series=here["series"].replace("now", "measured"))])
    rows = rows.drop_duplicates(["series", "level"]).sort_values(["series", "level"])
    return rows.assign(run=rows.groupby("series")["level"].diff().gt(GAP).cumsum())


@charts.kept
def _curve(x_title: str, has_models: bool, named: tuple[tuple[str, str], ...]) -> charts.Template:
    """`named`: the series in the legend, and their names."""
    x = alt.X("level:Q", title=x_title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", values=LEVELS))
    scale, axis = alt.Scale(domain=[0, 1]), alt.Axis(format="%", tickCount=5)
    y = alt.Y("acc:Q", title="Questions right", scale=scale, axis=axis)
    y_estimated = alt.Y("estimated:Q", title="Questions right", scale=scale, axis=axis)
    y_low = alt.Y("low:Q", title="Questions right")
    tooltip = charts.tips(
        "level:Q|Pruned|.0%; pruned:N|Components; acc:Q|Questions right|.1%",
        "low:Q|95% interval from|.1%; high:Q|to|.1%; n:Q|Questions",
    )
    about = charts.tips(
        "level:Q|Pruned|.0%; estimated:Q|Estimate, not measured|.0%",
        "low:Q|With the error to expect, from|.0%; high:Q|to|.0%; trusted:N|Reliable",
    )
    legend, shape = None, alt.Undefined
    if named:
        names = json.dumps(dict(named))
        legend = alt.Legend(orient="top", title=None, symbolType="stroke", symbolStrokeWidth=3, symbolOpacity=1,
                            labelLimit=320, values=[*dict(named)], labelExpr=f"{names}[datum.label]")  # fmt: skip
    color = alt.Color("series:N", scale=alt.Scale(domain=DOMAIN), legend=legend)
    if has_models:  # distinguished by their points too
        tooltip = [*charts.tips("model:N|Model"), *tooltip]
        shapes = alt.Scale(domain=["measured", SECOND], range=["circle", "square"])
        shape = alt.Shape("shape:N", scale=shapes, legend=None)
    measured = charts.named_chart("points").encode(x=x, color=color, tooltip=tooltip)
    through = charts.named_chart("through").encode(x=x, color=color, tooltip=tooltip)
    here = charts.named_chart("now").encode(x=x, color=color, tooltip=tooltip)
    estimated = charts.named_chart("estimates").encode(x=x, color=color, tooltip=about)
    hand = charts.named_chart("hand").encode(x=x, color=color, tooltip=about)
    others = charts.named_chart("others").encode(x=x, y=y, color=color, detail="task:N", tooltip=charts.tips(
        "task:N|Task; level:Q|Pruned|.0%; acc:Q|Questions right|.1%"))  # fmt: skip
    band = charts.named_chart("band").encode(x=x, y=y_low, y2="high:Q", color=color, tooltip=charts.tips(
        "level:Q|Pruned|.0%; low:Q|Random orders from|.1%; high:Q|to|.1%"))  # fmt: skip
    broken = charts.named_chart("break").encode(x=x, tooltip=charts.tips("level:Q|First detectable loss at|.0%"))
    layers = [
        band.mark_area(opacity=0.2),
        others.mark_line(strokeWidth=1, opacity=0.6),
        *_lines(y, color),
        broken.mark_rule(strokeWidth=1.5, color=MARK),
        charts.written(
            broken.encode(y=alt.Y("top:Q", title="Questions right"), text=alt.value("first loss")), 11, dy=-6
        ),
        estimated.mark_area(opacity=0.15).encode(y=y_low, y2="high:Q"),
        estimated.mark_line(strokeWidth=1.5, opacity=0.8).encode(y=y_estimated, strokeDash=DASHES),
        through.mark_line(strokeWidth=2, opacity=0.55).encode(y=y, detail="run:N"),
        measured.mark_rule(strokeWidth=1.5).encode(y=y_low, y2="high:Q"),
        measured.mark_point(filled=True, size=55, opacity=1).encode(y=y, shape=shape),
        # both named for screens.css
        here.mark_rule(strokeWidth=2.5).encode(y=y_low, y2="high:Q").properties(name="now_interval"),
        here.mark_point(filled=True, size=190, opacity=1, shape="diamond").encode(y=y).properties(name="now"),
        hand.mark_point(filled=False, size=190, opacity=1, strokeWidth=2.5, shape="diamond").encode(y=y_estimated),
    ]
    return charts.template(300, *layers, padding={"right": NAMES_PX})


def _models(rows: pd.DataFrame) -> dict[str, str]:
    """Returns the name of each model in these rows, by the series of its line."""
    named = rows.assign(series=rows["series"].replace("now", "measured")).drop_duplicates("series")
    return dict(zip(named["series"], named["model"], strict=True))


def _names_around(others: pd.DataFrame, band: pd.DataFrame) -> dict[str, str]:
    """Returns what thin lines and the band are named in the legend: the tasks, or how many there are."""
    tasks = [*dict.fromkeys(others["task"])]
    words = " and ".join(tasks) if len(tasks) <= MOST_NAMED else f"{len(tasks)} other tasks"
    return ({OTHER: words} if tasks else {}) | ({} if band.empty else {RANDOM: "random orders"})


def _lines(y: alt.Y, color: alt.Color) -> list[alt.Chart]:
    """Returns horizontal lines across the curve, each with its name at the right end, above or below it."""
    base = charts.named_chart("lines").encode(y=y, color=color)
    tooltip = charts.tips("series:N|Line", "acc:Q|Questions right|.1%")
    name = charts.named_chart("lines").encode(y=y, x=alt.X("end:Q"), text="series:N")
    return [
        base.mark_rule(strokeWidth=1.5).encode(strokeDash=DASHES, tooltip=tooltip),
        charts.written(name.transform_filter("datum.above"), 11, align="left", dx=8, baseline="bottom"),
        charts.written(name.transform_filter("!datum.above"), 11, align="left", dx=8, baseline="top"),
    ]
