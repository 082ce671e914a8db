"""Sets of heads ablated together as a chart and a sentence: the best by prefix matching, beside others at random."""

from collections.abc import Callable, Mapping
from typing import Any

import altair as alt
import pandas as pd

from engine.importance.head_sets import DRAWS, HeadSet
from engine.shapes import ModelShape
from pages.ui.shared import charts

STRONGEST, RANDOM = "best by prefix matching", "as many others, at random"
HELP = (
    "The heads that match prefixes best, taken out together, and as many of the others, drawn at random: "
    f"{DRAWS} draws of each size, the band from the lowest to the highest. One such head alone is often not missed, as "
    "others do the same."
)
HEIGHT_PX = 280


def rows(shape: ModelShape, values: Mapping[HeadSet, Mapping[str, Any]]) -> pd.DataFrame:
    """One row a set: `size` heads, `kind` (STRONGEST or RANDOM), `draw`, `heads` by name, and its values. The full
    model is where both kinds begin."""
    found = []
    for each, value in values.items():
        kinds = (STRONGEST, RANDOM) if not each.heads else (RANDOM if each.draw else STRONGEST,)
        about = {"size": len(each.heads), "draw": each.draw, "heads": each.names(shape)}
        found += [{**about, "kind": kind, **value} for kind in kinds]
    return pd.DataFrame(found)


def by_size(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Of each kind and size the mean of a column, the lowest and the highest draw, and how many there are."""
    grouped = frame.groupby(["kind", "size"], sort=False)[column]
    found = grouped.agg(value="mean", low="min", high="max", n="count").reset_index()
    named = frame[frame["kind"].eq(STRONGEST)].set_index("size")["heads"]
    return found.assign(heads=found["size"].map(named).where(found["kind"].eq(STRONGEST), ""))


def chart(frame: pd.DataFrame, title: str, form: str, domain: tuple[float, float] | None = None) -> charts.Picture:
    """The value against how many heads are gone, from `by_size`; `form` is d3's format of the value."""
    counts = tuple(sorted(int(size) for size in frame["size"].unique()))
    return charts.picture(_chart(title, form, domain, counts), sets=frame)


@charts.kept
def _chart(title: str, form: str, domain: tuple[float, float] | None, counts: tuple[int, ...]) -> charts.Template:
    scale = alt.Scale(domain=list(domain)) if domain else alt.Scale(zero=False)
    y = alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(format=form, tickCount=5))
    axis = alt.Axis(labelAngle=0, grid=False)
    legend = alt.Legend(orient="top", title=None, symbolType="stroke", symbolStrokeWidth=3, labelLimit=260)
    base = charts.named_chart("sets").encode(
        x=alt.X("size:O", title="Heads taken out together", sort=list(counts), scale=alt.Scale(padding=0.1), axis=axis),
        color=alt.Color("kind:N", scale=alt.Scale(domain=[RANDOM, STRONGEST]), legend=legend),
        tooltip=charts.tips(
            f"size:O|Heads out; kind:N|Which; value:Q|{title}|{form}",
            f"low:Q|lowest draw|{form}; high:Q|highest draw|{form}; heads:N|Heads",
        ),
    )
    band = base.transform_filter(alt.datum.kind == RANDOM).mark_area(opacity=0.2)
    return charts.template(
        HEIGHT_PX,
        band.encode(y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q"),
        base.mark_line(strokeWidth=2.5).encode(y=y),
        base.mark_point(filled=True, size=55, opacity=1).encode(y=y),
    )


def in_words(frame: pd.DataFrame, value: Callable[[float], str]) -> str:
    """What the largest set does beside random ones, and what one head alone does, from `by_size`; `value` says a
    number."""
    known = frame.pivot(index="size", columns="kind", values="value").dropna()
    spread = frame[frame["kind"].eq(RANDOM)].set_index("size")
    if len(known) < 2:
        return "Not measured yet."
    apart = (known[STRONGEST] - known[RANDOM]).abs()
    most, full = int(apart.idxmax()), value(known.at[0, STRONGEST])
    words = f"The full model: **{full}**. Without the **{_heads(most)}** that match prefixes best: "
    low, high = (value(spread.at[most, end]) for end in ("low", "high"))
    words += f"**{value(known.at[most, STRONGEST])}**; without as many others **{value(known.at[most, RANDOM])}** "
    words += f"({low} to {high} in {int(spread.at[most, 'n'])} draws)."
    return words + (
        f" Without the best one alone: {value(known.at[1, STRONGEST])}." if most > 1 and 1 in known.index else ""
    )


def _heads(count: int) -> str:
    return "1 head" if count == 1 else f"{count} heads"
