"""The paths of runs on principal components, and heads' ablations as bars: takes a DataFrame, returns a picture."""

import altair as alt
import pandas as pd

from engine.views.colors import GREY, MARK
from pages.ui.figures import charts
from pages.ui.training.charts import ABLATED, ONE, TokenAxis, by_kind, by_run, heard, kinds_in

PATH_PX = 190


def path_panel(paths: pd.DataFrame, run: str, look: TokenAxis) -> charts.Picture:
    """Returns the path of one run on the two components, those of the others in gray; the window is thick, from A to B,
    and a dot marks the marker's moment. All panels have the same axes."""
    ends = tuple((float(paths[axis].min()), float(paths[axis].max())) for axis in ("x", "y"))
    names = tuple(dict.fromkeys(paths["run"]))
    return charts.picture(_path_panel(look, names, run, ends), paths=paths, one=ONE)


@charts.kept
def _path_panel(
    look: TokenAxis, names: tuple[str, ...], run: str, ends: tuple[tuple[float, float], ...]
) -> charts.Template:
    axis = alt.Axis(tickCount=4, grid=False)
    across, up = (alt.Scale(domain=_roomy(reach), nice=False) for reach in ends)
    x = alt.X("x:Q", title="Component 1, nats", axis=axis, scale=across)
    y = alt.Y("y:Q", title="Component 2, nats", axis=axis, scale=up)
    base = charts.named_chart("paths").encode(x=x, y=y, order="order:Q")
    others = base.transform_filter(alt.datum.run != run).mark_line(color=GREY, strokeWidth=1, opacity=0.5)
    own = base.transform_filter(alt.datum.run == run)
    colour = by_run(names)
    tooltip = charts.tips(
        "run:N|Run; tokens:Q|Tokens trained on|,.0f; x:Q|Component 1, nats|+.2f; y:Q|Component 2, nats|+.2f"
    )
    gold = own.transform_filter("datum.inside").mark_line(color=MARK, strokeWidth=8, opacity=0.35, strokeCap="round")
    line = own.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=14)).encode(color=colour, tooltip=tooltip)
    marks = charts.written(own.transform_filter("datum.mark != ''"), 13, fontWeight="bold", dx=11, dy=-9)
    now = own.transform_filter(look.now)
    dot = now.mark_point(filled=True, size=110, opacity=1, stroke=GREY).encode(color=colour, tooltip=tooltip)
    layers = [others.encode(detail="run:N"), gold, line, marks.encode(text="mark:N"), heard(dot, look)]
    return charts.template(PATH_PX + charts.AXIS_PX, *layers)


def bars(heads: pd.DataFrame, look: TokenAxis, what: str) -> charts.Picture:
    """Returns one bar per head: its ablation's effect (`charts.ABLATED`) at the snapshot nearest to the marker."""
    values = heads[what].dropna()
    reach = float(values.abs().max()) if len(values) else 1.0
    names = tuple(dict.fromkeys(heads["name"]))
    return charts.picture(_bars(look, what, names, kinds_in(heads, what), reach or 1.0), heads=heads, one=ONE)


@charts.kept
def _bars(look: TokenAxis, what: str, names: tuple[str, ...], kinds: tuple[str, ...], reach: float) -> charts.Template:
    now = look.now
    axis = alt.Axis(labelAngle=-90, labelOverlap=True, grid=False)
    x = alt.X("name:N", title="Head", sort=list(names), scale=alt.Scale(domain=list(names)), axis=axis)
    y = alt.Y(
        f"{what}:Q",
        title=ABLATED[what],
        scale=alt.Scale(domain=[-reach, reach]),
        axis=alt.Axis(tickCount=5, titleLimit=0),
    )
    tooltip = charts.tips(f"name:N|Head; kind:N|Kind; tokens:Q|Tokens trained on|,.0f; {what}:Q|{ABLATED[what]}|+.3f")
    base = charts.named_chart("heads").transform_filter(f"isValid(datum.{what})").transform_filter(now)
    drawn = base.mark_bar().encode(x=x, y=y, color=by_kind(kinds), tooltip=tooltip)
    return charts.template(PATH_PX + charts.AXIS_PX, heard(drawn, look))


def _roomy(ends: tuple[float, float]) -> list[float]:
    room = 0.08 * ((ends[1] - ends[0]) or 1.0)
    return [ends[0] - room, ends[1] + room]
