"""Charts of criteria compared: DataFrames of `pages.ui.sweeps.criteria_tables` in, returns pictures."""

from functools import partial

import altair as alt
import pandas as pd

from engine.importance.rankings import CRITERIA
from engine.importance.rankings_of import OF_ONE_TASK
from engine.studies.compare import RANDOM
from engine.views.colors import PLACES, UNDEFINED, palette
from pages.ui.figures import charts
from pages.ui.sweeps.criteria_tables import CHANCE, label

TITLES = {
    "heads": "Attention heads pruned", "ffns": "FFNs pruned", "both": "Heads and FFNs pruned, the same share of each"
}  # fmt: skip
HEIGHT_PX, ROW_PX, AROUND_PX = 330, 26, 165
_NAMES = dict.fromkeys(label(name) for name in (*CRITERIA, *OF_ONE_TASK) if name != RANDOM)
ORDER = palette(list(_NAMES), random=RANDOM, chance=CHANCE)
ROUNDS = ([1, 0], [7, 3], [3, 2], [7, 2, 2, 2])  # dashes, as there are more lines than colours
DASHES = [[2, 4] if name == CHANCE else ROUNDS[at // len(PLACES)] for at, name in enumerate(ORDER)]
TOOLTIP = "line:N|Criterion; level:Q|Pruned|.0%; acc:Q|Questions right|.1%; about:N|Uncertainty; n:Q|Questions"


def curves(frame: pd.DataFrame, axis: str) -> charts.Picture:
    """Returns accuracy over level: a line per criterion, random orders as a band with their mean, chance dotted. A
    click in the legend brings a line to the front."""
    here = tuple(name for name in ORDER if name in set(frame["line"]))
    return charts.picture(_curves(axis, here), curves=frame)


@charts.kept
def _curves(axis: str, here: tuple[str, ...]) -> charts.Template:
    share = partial(alt.Axis, format="%", tickCount=5)
    x = alt.X("level:Q", title=TITLES[axis], scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", tickCount=11))
    scale = alt.Scale(domain=[0, 1])
    legend = alt.Legend(
        orient="right", title=None, values=list(here), symbolType="stroke", symbolStrokeWidth=3, symbolOpacity=1
    )
    colour = alt.Color("line:N", scale=alt.Scale(domain=ORDER), legend=legend)
    dash = alt.StrokeDash("line:N", scale=alt.Scale(domain=ORDER, range=DASHES), legend=legend)
    chosen = alt.selection_point(name="named", fields=["line"], bind="legend")
    base = charts.named_chart("curves").encode(x=x, color=colour, tooltip=charts.tips(TOOLTIP))
    y = alt.Y("acc:Q", title="Questions right", scale=scale, axis=share())
    band = base.transform_filter(f"datum.kind == '{RANDOM}'").mark_area(opacity=0.22)
    band = band.encode(y=alt.Y("low:Q", title="Questions right", scale=scale), y2="high:Q")
    clear = alt.condition(chosen, alt.value(1.0), alt.value(0.15))
    drawn = base.mark_line(strokeWidth=2).encode(y=y, strokeDash=dash, opacity=clear).add_params(chosen)
    points = base.transform_filter(f"datum.kind != '{CHANCE}'").mark_point(filled=True, size=34)
    return charts.template(HEIGHT_PX, band, drawn, points.encode(y=y, opacity=clear))


def agreement(cells: pd.DataFrame) -> charts.Picture:
    """Returns criteria x criteria, Spearman's rho in every cell."""
    return charts.picture(_agreement(tuple(dict.fromkeys(cells["a"]))), cells=cells)


@charts.kept
def _agreement(names: tuple[str, ...]) -> charts.Template:
    axis = partial(alt.Axis, title=None, ticks=False, domain=False, grid=False, labelLimit=190, labelOverlap=False)
    base = charts.named_chart("cells").encode(
        x=alt.X("b:N", sort=list(names), axis=axis(labelAngle=-45)),
        y=alt.Y("a:N", sort=list(names), axis=axis()),
        tooltip=charts.tips("a:N|Criterion; b:N|and; number:N|Spearman's rho; interval:N|95% interval"),
    )
    legend = alt.Legend(orient="top", direction="horizontal", tickCount=3, format=".2f", gradientLength=130)
    colour = alt.Color("value:Q", title="Spearman's rho", scale=charts.around_zero(1.0, clamp=True), legend=legend)
    rect = base.mark_rect(**charts.CELL, invalid="show")
    rect = rect.encode(color=alt.condition("!isValid(datum.value)", alt.value(UNDEFINED), colour))
    numbers = charts.on_cells(base, 11, "value", "number:N")
    return charts.template(ROW_PX * len(names) + AROUND_PX, rect, *numbers)
