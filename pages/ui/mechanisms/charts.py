"""What examples add without each kind of heads, and which heads kinds share, as pictures: takes DataFrames of
`pages.ui.mechanisms.tables`."""

import json
import math
from typing import Any

import altair as alt
import pandas as pd

from engine.studies.mechanisms import RANDOM
from engine.views.colors import GREY, MARK
from pages.ui.figures import charts
from pages.ui.mechanisms.tables import DO, title

ROW_PX, AROUND_PX = 50, 70
NAMES_PX, DOES_PX = (102, 135), (11, 14)  # of the names of kinds, and the type of what they do; each also on a slide
MORE_PX = 120  # room for what they do, by which the first chart is wider (screens.css)
STEP, ROOM = 10, 4  # points: the scale ends at multiples of it, with room for a dot
TOOLTIP = charts.tips("kind:N|Heads; does:N|What they do; which:N|Left out; left:Q|Examples add (points)|+.1f",
                      "interval:N|95% interval; beyond:N|Costs more than every random set; heads:N|Which")  # fmt: skip
WORDS = "split(datum.label, ' ')"  # one per line
PLAIN = {"title": None, "ticks": False, "domain": False, "grid": False, "labelLimit": 260, "labelFlush": False}


def left(rows: pd.DataFrame, gain: float, on_slide: bool = False) -> dict[str, charts.Picture]:
    """Returns charts of `tables.chart_rows` by title, one per share of heads, the largest first, on one scale: what
    examples add without each kind, with its interval, and without each random set; orange where the loss is clear,
    hollow without the heads of other kinds. A dashed line is at the full model's `gain`. The first says what the heads
    of each kind do."""
    is_random = rows["kind"] == RANDOM
    low = STEP * math.floor((min(0.0, *rows["left_low"].where(~is_random, rows["left"])) - ROOM) / STEP)
    high = STEP * math.ceil((max(gain, *rows["left_high"].where(~is_random, rows["left"])) + ROOM) / STEP)
    excludes, kinds = bool(rows["exclusive"].any()), rows["kind"].unique()
    found = dict[str, charts.Picture]()
    lines = pd.DataFrame([{"at": 0.0, "words": "no gain"}, {"at": gain, "words": "full model"}])
    for share in sorted(rows["share"].unique(), reverse=True):
        mine = rows[rows["share"] == share]
        drawn = _left(len(kinds), (low, high), excludes, not found, on_slide)
        found[title(mine)] = charts.picture(drawn, cells=mine, lines=lines)
    return found


@charts.kept
def _left(n_kinds: int, ends: tuple[int, int], excludes: bool, defines: bool, on_slide: bool) -> charts.Template:
    scale = alt.Scale(domain=list(ends), nice=False)
    x = alt.X("left:Q", title="Points that examples add", scale=scale, axis=alt.Axis(tickCount=6))
    left: dict[str, Any] = {**PLAIN, "orient": "left", "minExtent": NAMES_PX[on_slide] + MORE_PX * defines}
    names = alt.Axis(**left, labelFontSize=13, labelFontWeight=600, labelOffset=-8 * defines)
    small = alt.expr(str(DOES_PX[on_slide]))
    does = alt.Axis(**left, labelFontSize=small, labelOffset=9, labelExpr=f"{json.dumps(DO)}[datum.label]")
    y = alt.Y("kind:N", sort=None, axis=None)
    base = charts.named_chart("cells").encode(y=y, tooltip=TOOLTIP)
    if excludes:
        base = base.encode(yOffset=alt.YOffset("exclusive:N"))
    color = alt.condition("datum.is_clear", alt.value(MARK), alt.value(GREY))
    draws, tops = (base.transform_filter(f"datum.kind {sign} '{RANDOM}'") for sign in ("==", "!="))
    rule = tops.mark_rule(strokeWidth=3, opacity=0.6).encode(
        x=alt.X("left_low:Q", scale=scale), x2="left_high:Q", color=color
    )
    full = tops.transform_filter("!datum.exclusive").mark_point(size=240, filled=True, opacity=1)
    hollow = tops.transform_filter("datum.exclusive").mark_point(size=160, filled=False, strokeWidth=2.5, opacity=1)
    random = draws.mark_point(size=70, filled=True, opacity=0.6).encode(x=x, color=color, y=y.axis(names))
    dots = full.encode(x=x, color=color, y=y.axis(does if defines else None)), hollow.encode(x=x, color=color)
    ends_at = charts.named_chart("lines").encode(x=alt.X("at:Q", scale=scale))
    lines = ends_at.mark_rule(color=GREY, strokeDash=[5, 4])
    named_lines = charts.written(ends_at, 11).encode(y=alt.value(-12 - 8 * on_slide), text="words:N")
    numbers = _above_dots(tops.transform_filter("!datum.exclusive").encode(x=x, text="points:N"), 13, fontWeight="bold")
    if excludes:
        numbers += _above_dots(tops.transform_filter("datum.exclusive").encode(x=x, text="points:N"), 11)
    inward = alt.expr(f"datum.left > {sum(ends) / 2:g} ? 'right' : 'left'")
    named = _above_dots(draws.encode(x=x, text="named:N"), 11, align=inward)
    height = ROW_PX * n_kinds * (1 + 0.6 * excludes) + AROUND_PX
    axes = alt.LayerChart(layer=[]).resolve_axis(y="independent").resolve
    return charts.template(height, lines, named_lines, rule, *numbers, *named, random, *dots, resolve=axes)


def _above_dots(base: alt.Chart, size_px: int, **mark: Any) -> list[alt.Chart]:
    """Returns text above dots, which lines do not cross."""
    return charts.haloed(charts.written(base, size_px, dy=-16, **mark))


def shared(rows: pd.DataFrame) -> charts.Picture:
    """Returns `tables.overlap_rows`: how many top heads every two kinds share."""
    return charts.picture(
        _shared(tuple(rows["a"].unique()), tuple(rows["b"].unique()), int(rows["n"].iloc[0])), pairs=rows
    )


@charts.kept
def _shared(down: tuple[str, ...], along: tuple[str, ...], n: int) -> charts.Template:
    tooltip = charts.tips("a:N|Kind; b:N|and; shared:Q|Heads in both; n:Q|of; srcc:Q|SRCC|.2f")
    x = alt.X("b:N", sort=list(along), axis=alt.Axis(**PLAIN, labelAngle=0, labelOverlap=False, labelExpr=WORDS))
    y = alt.Y("a:N", sort=list(down), axis=alt.Axis(**PLAIN))
    base = charts.named_chart("pairs").encode(x=x, y=y, tooltip=tooltip)
    color = alt.Color("shared:Q", scale=alt.Scale(domain=[0, n]), legend=None)
    return charts.template(34 * len(down) + AROUND_PX, base.mark_rect(**charts.CELL).encode(color=color),
                           *charts.on_cells(base, 13, "shared", "shared:N"))  # fmt: skip
