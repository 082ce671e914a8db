"""One head as pictures: takes a DataFrame, returns a picture."""

from dataclasses import replace

import altair as alt
import pandas as pd

from engine.views.colors import GREY, MARK
from pages.ui.figures import charts

ROOM = 1.6  # of the strip, for its text
SIDE_PX, Y_AXIS_PX = 260, 60  # of a pattern; in a file it is square
X_AXIS_PX = 62


def score_strip(frame: pd.DataFrame) -> charts.Picture:
    """Returns `tables.score_rows`: all heads as ticks, one row per score on its own scale, with this one marked."""
    return charts.picture(_score_strip(tuple(frame["score"].unique())), scores=frame)


@charts.kept
def _score_strip(titles: tuple[str, ...]) -> charts.Template:
    axis = alt.Axis(title=None, labelLimit=200, ticks=False, domain=False, grid=False)
    y = alt.Y("score:N", sort=list(titles), axis=axis)
    x = alt.X("at:Q", axis=None, scale=alt.Scale(domain=[-0.02, ROOM], nice=False))
    tooltip = charts.tips(f"name:N|Head; score:N|Score; value:Q|Value|{charts.MAGNITUDE}")
    base = charts.named_chart("scores").encode(y=y, x=x, tooltip=tooltip)
    ticks = base.transform_filter("!datum.mine").mark_tick(thickness=1.5, size=18, color=GREY, opacity=0.55)
    mine = base.transform_filter("datum.mine && isValid(datum.value)")
    mine = mine.mark_point(filled=True, size=120, color=MARK, opacity=1)
    words = charts.written(base.transform_filter("datum.mine"), 12, align="right", baseline="middle")
    words = words.encode(x=alt.value(alt.ExprRef("width")), text="words:N")
    return charts.template(max(4 * 44, len(titles) * 32), ticks, mine, words)


def pattern_map(frame: pd.DataFrame, n: int, offsets: tuple[int, ...]) -> charts.Picture:
    """Returns destinations x sources, colored by attention: orange at each `destination - source` in `offsets`."""
    marked = (frame["destination"] - frame["source"]).isin(offsets)
    return charts.picture(_pattern_map(n), cells=frame.assign(marked=marked))


@charts.kept
def _pattern_map(n: int) -> charts.Template:
    across = {"domain": [0, n], "nice": False}
    axis = {"grid": False, "tickMinStep": 1, "tickCount": 4, "labelFlush": 12}
    x = alt.X("source:Q", title="looks at token index", scale=alt.Scale(**across), axis=alt.Axis(**axis))
    y = alt.Y("destination:Q", title="from token index", scale=alt.Scale(**across, reverse=True), axis=alt.Axis(**axis))
    scale = alt.Scale(domain=[0, 1], type="sqrt")  # shares of a few percent are visible
    colour = alt.Color("attention:Q", scale=scale, legend=None)
    base = charts.named_chart("cells").transform_calculate(x2="datum.source + 1", y2="datum.destination + 1")
    tooltip = charts.tips("from:N|from; to:N|looks at; attention:Q|Attention|.3f")
    base = base.encode(x=x, y=y, x2="x2:Q", y2="y2:Q", tooltip=tooltip)
    cells = base.transform_filter("!datum.marked").mark_rect().encode(color=colour)
    shade = alt.Opacity("attention:Q", scale=alt.Scale(domain=[0, 1], range=[0.2, 1], type="sqrt"), legend=None)
    # cells may be two pixels wide: with an edge they are seen
    marked = base.transform_filter("datum.marked").mark_rect(color=MARK, stroke=MARK, strokeWidth=1)
    frame = alt.ViewBackground(stroke=GREY, strokeWidth=1)
    return charts.template(SIDE_PX + X_AXIS_PX, cells, marked.encode(opacity=shade), view=frame)


def square(drawn: charts.Picture) -> charts.Picture:
    """Returns a pattern for a file; on screen it fills its column."""
    return replace(drawn, template={**drawn.template, "width": SIDE_PX + Y_AXIS_PX})


def effects(frame: pd.DataFrame) -> charts.Picture:
    """Returns `tables.effect_rows`: change of accuracy without the head, with its 95% interval, one row per task."""
    return charts.picture(_effects(len(frame)), tasks=frame, zero=pd.DataFrame({"zero": [0]}))


@charts.kept
def _effects(n: int) -> charts.Template:
    axis = alt.Axis(title=None, labelLimit=220, ticks=False, domain=False, grid=False)
    y = alt.Y("task:N", sort=None, axis=axis)
    x = alt.X("low:Q", title="← worse · points (95%) · better →", axis=alt.Axis(tickCount=6))
    tooltip = charts.tips(
        "task:N|Task; points:Q|Change, points|+.1f; low:Q|from|+.1f; high:Q|to|+.1f; gained:Q|Gained; lost:Q|Lost",
        "p:Q|McNemar's p|.3f; n:Q|Questions",
    )
    base = charts.named_chart("tasks").encode(y=y, tooltip=tooltip)
    zero = charts.named_chart("zero").mark_rule(color=GREY).encode(x=alt.X("zero:Q"))
    bar = base.mark_rule(strokeWidth=2, color=GREY).encode(x=x, x2="high:Q")  # black in either theme otherwise
    point = base.mark_point(filled=True, size=110, opacity=1).encode(x="points:Q")
    return charts.template(46 * n + charts.AXIS_PX, zero, bar, point)


def places(frame: pd.DataFrame) -> charts.Picture:
    """Returns `tables.shown_places`: the head's rank by each criterion, one dot per task, or a gray ring if its score
    may be chance."""
    n_heads = int(frame["heads"].iloc[0]) if len(frame) else 1
    criteria, tasks = (tuple(frame[name].unique()) for name in ("criterion", "task"))
    return charts.picture(_places(n_heads, criteria, tasks), places=frame)


@charts.kept
def _places(n_heads: int, criteria: tuple[str, ...], tasks: tuple[str, ...]) -> charts.Template:
    axis = alt.Axis(title=None, labelLimit=220, ticks=False, domain=False, grid=True)
    y = alt.Y("criterion:N", sort=list(criteria), axis=axis)
    scale = alt.Scale(domain=[1, n_heads], nice=False, range=[8, alt.ExprRef("width - 80")])  # room for the words
    title = f"Rank among {n_heads:,} heads (1 = most important)"
    x = alt.X("rank:Q", title=title, scale=scale, axis=alt.Axis(tickMinStep=1, tickCount=6, grid=False))
    legend = alt.Legend(title=None, orient="top", labelLimit=260) if len(tasks) > 1 else None
    tooltip = charts.tips(
        f"criterion:N|Criterion; task:N|Task; rank:Q|Rank; heads:Q|of; score:Q|Score|{charts.MAGNITUDE}"
    )
    offset = alt.YOffset("task:N", sort=list(tasks))
    base = charts.named_chart("places").encode(y=y, yOffset=offset, x=x, tooltip=tooltip)
    points = base.transform_filter("!datum.is_chance").mark_point(filled=True, size=110, opacity=0.9)
    points = points.encode(color=alt.Color("task:N", legend=legend))
    unsure = base.transform_filter("datum.is_chance").mark_point(filled=False, size=110, color=GREY, opacity=0.9)
    words = f"datum.is_chance ? 'not clear' : format(datum.rank, ',') + ' of {n_heads:,}'"
    words = base.transform_calculate(words=words)
    ranks = charts.written(words, 12, align="right").encode(x=alt.value(alt.ExprRef("width")), text="words:N")
    return charts.template(40 * len(criteria) + charts.AXIS_PX, points, unsure, ranks)
