"""Charts of results for notebooks (`Result.chart`), in Altair, which is imported when one is drawn.

A column is written as "field|title" or "field|title|format"; the title names the unit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    Rows = Sequence[Mapping[str, Any]] | pd.DataFrame

RIGHT = "acc|Questions right|%"
CELL_PX, SMALL_PX, MOST_LARGE = 20, 3, 2000  # of a map, and how many cells may be large
MOST_POINTS = 200  # that are drawn on a line
ALL: Any = {"content": "data"}  # a tooltip with every column


def bars(rows: Rows, name: str, value: str, low: str = "", high: str = "") -> Any:
    """Returns a horizontal bar for each row; `low` and `high` are the fields of its interval."""
    import altair as alt

    field, title, _ = _parts(name)
    x = _quantity(alt.X, value)
    base = alt.Chart(_data(rows)).encode(y=alt.Y(field, type="nominal", sort=None, title=title))
    if not low:
        return base.mark_bar(tooltip=ALL).encode(x=x)
    title = f"{_parts(value)[1]} (95% interval)"
    ends = base.mark_rule(color="black").transform_filter(f"isValid(datum['{low}'])")
    ends = ends.encode(x=alt.X(low, type="quantitative", title=title), x2=high)
    return base.mark_bar(tooltip=ALL).encode(x=x.title(title)) + ends


def curves(rows: Rows, x: str, y: str, by: str = "") -> alt.Chart:
    """Returns a line over the numbers `x`, or one for each value of `by`; a missing number interrupts it."""
    import altair as alt

    chart = alt.Chart(_data(rows)).mark_line(point=len(rows) < MOST_POINTS, tooltip=ALL)
    chart = chart.encode(x=_quantity(alt.X, x, zero=False), y=_quantity(alt.Y, y))
    if not by:
        return chart
    field, title, _ = _parts(by)
    return chart.encode(color=alt.Color(field, type="nominal", sort=None, title=title))


def grid(rows: Rows, x: str, y: str, value: str) -> alt.Chart:
    """Returns a cell for each row, colored by its value: around 0 if some are negative."""
    import altair as alt

    field, title, form = _parts(value)
    known = [row[field] for row in _records(rows) if row[field] is not None]
    is_signed = min(known, default=0) < 0
    reach = max(map(abs, known), default=0)
    scale = alt.Scale(scheme="blueorange", domain=[-reach, reach]) if is_signed else alt.Scale(scheme="blues")
    color = alt.Color(
        field, type="quantitative", title=title, scale=scale, legend=alt.Legend(format=form or alt.Undefined)
    )
    look: dict[str, Any] = {"type": "ordinal", "sort": None, "axis": alt.Axis(labelOverlap=True)}
    (across, x_title, _), (down, y_title, _) = _parts(x), _parts(y)
    size = alt.Step(CELL_PX if len(known) <= MOST_LARGE else SMALL_PX)
    chart = alt.Chart(_data(rows), width=size, height=size).mark_rect(tooltip=ALL)
    return chart.encode(x=alt.X(across, title=x_title, **look), y=alt.Y(down, title=y_title, **look), color=color)


def _quantity(channel: Any, words: str, zero: bool = True) -> Any:
    import altair as alt

    field, title, form = _parts(words)
    scale = alt.Scale(domain=[0, 1]) if words == RIGHT else alt.Scale(zero=zero)
    return channel(field, type="quantitative", title=title, scale=scale, axis=alt.Axis(format=form or alt.Undefined))


def _parts(words: str) -> tuple[str, str, str]:
    field, title, form = f"{words}||".split("|")[:3]
    return field, title or field, form


def _data(rows: Rows) -> alt.Data:
    """Returns the rows as they are written in a file: Altair refuses a table of more than 5,000."""
    import altair as alt

    return alt.Data(values=_records(rows))


def _records(rows: Rows) -> list[dict[str, Any]]:
    """Returns the rows with NaN as None, which JSON lacks."""
    import pandas as pd

    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows)
    return json.loads(frame.to_json(orient="records", double_precision=15))
