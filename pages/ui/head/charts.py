"""One head as pictures: takes a DataFrame, returns a picture."""

from dataclasses import replace

import altair as alt
import pandas as pd

from engine.views.colors import GREY, MARK
from pages.ui.figures import charts
from pages.ui.head.tables import STANDS_OUT

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


def feeders(frame: pd.DataFrame, random: float) -> charts.Picture:
    """Returns `tables.feeder_rows`: previous-token score against K-composition, colored by layer; those that stand
    out by name. Lines mark random heads, and the value from which a head stands out."""
    named_ones = (frame["times_random"] >= STANDS_OUT) & (frame.index < 4)  # more overlap
    named = frame.assign(label=frame["head"].where(named_ones, ""))
    lines = pd.DataFrame({"composition": [random, STANDS_OUT * random], "words": ["random heads", "stands out"]})
    highest = float(max(frame["composition"].max(), STANDS_OUT * random))
    return charts.picture(_feeders(int(frame["layer"].max()) + 1, 1.1 * highest), heads=named, lines=lines)


@charts.kept
def _feeders(n_layers: int, highest: float) -> charts.Template:
    x = alt.X("previous_token:Q", title="Previous-token score", scale=alt.Scale(domain=[0, 1.08], nice=False),
              axis=alt.Axis(values=[0, 0.5, 1], format=".1f"))  # fmt: skip
    y = alt.Y("composition:Q", title="K-composition", scale=alt.Scale(domain=[0, highest], nice=False))
    tooltip = charts.tips(
        "head:N|Head; previous_token:Q|Previous token|.2f; composition:Q|K-composition|.3f",
        "times_random:Q|Times random|.1f",
    )
    base = charts.named_chart("heads").encode(x=x, y=y, tooltip=tooltip)
    colour = charts.by_layer(n_layers, None if n_layers > 1 else ())  # a single layer needs no legend
    points = base.mark_point(filled=True, size=90, opacity=0.85).encode(color=colour)
    names = charts.written(base.transform_filter("datum.label != ''"), 12, align="left", dx=11, dy=-5)
    edges = charts.named_chart("lines").encode(y="composition:Q")
    line = edges.mark_rule(color=GREY, strokeDash=[4, 3])
    named = charts.written(edges, 11, align="right", baseline="bottom", dy=-2)
    named = named.encode(x=alt.value(alt.ExprRef("width")), text="words:N")
    return charts.template(280, line, named, points, names.encode(text="label:N"))


def distances(frame: pd.DataFrame) -> charts.Picture:
    """Returns `corpus_tables.distance_rows`: the share of attention by range of distances."""
    return charts.picture(_distances(), distances=frame)


@charts.kept
def _distances() -> charts.Template:
    axis = alt.Axis(labelAngle=0, ticks=False, labelExpr="split(datum.label, '–')[0]")
    x = alt.X("distance:O", title="Tokens back, from", sort=None, axis=axis)
    y = alt.Y("share:Q", title="Share of attention", axis=alt.Axis(format="%", tickCount=4))
    tooltip = charts.tips("distance:N|Tokens back; share:Q|Share of attention|.1%")
    return charts.template(200, charts.named_chart("distances").mark_bar().encode(x=x, y=y, tooltip=tooltip))


def all_heads(frame: pd.DataFrame, x: str, y: str, color: str) -> charts.Picture:
    """Returns `all_heads.rows_of`: all heads by two scores, colored by a third or by layer, with this one ringed."""
    n_layers = int(frame["layer"].max()) + 1 if color == "Layer" else 0
    return charts.picture(_all_heads(x, y, color, n_layers), heads=frame)


@charts.kept
def _all_heads(x: str, y: str, color: str, n_layers: int) -> charts.Template:
    clicked = alt.selection_point(name="head", fields=["layer", "head"], empty=False)
    box = alt.selection_interval(name="box")
    tooltip = charts.tips(
        "name:N|Head",
        *(f"{field}:Q|{title}|{charts.MAGNITUDE}" for field, title in (("x", x), ("y", y), ("color", color))),
    )
    scale = alt.Scale(zero=False, nice=True)
    base = charts.named_chart("heads").encode(
        x=alt.X("x:Q", title=x, scale=scale), y=alt.Y("y:Q", title=y, scale=scale), tooltip=tooltip
    )
    shade = alt.Color("color:Q", title=color, scale=alt.Scale(range=[GREY, MARK]))
    colour = charts.by_layer(n_layers) if n_layers else shade
    dots = base.mark_point(filled=True, size=80, opacity=0.8, cursor="pointer").encode(color=colour)
    ring = base.transform_filter("datum.mine").mark_point(filled=False, size=220, stroke=MARK, strokeWidth=2.5)
    return charts.template(380, dots.add_params(clicked, box), ring)
