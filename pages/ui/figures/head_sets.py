"""Sets of heads ablated together as a chart and a sentence: the best by prefix matching, next to others at random."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, TypeVar

import altair as alt
import pandas as pd

from engine.shapes import ModelShape
from engine.studies.removal import DRAWS, HeadSet, n_sets
from engine.views.colors import palette
from pages.ui.figures import charts
from pages.ui.figures.empty import empty_state
from pages.ui.page.work import Work, live

STRONGEST, RANDOM = "best by prefix matching", "the same number of others, at random"
DOMAIN = palette(pruned=STRONGEST, random=RANDOM)
HELP = (
    "The heads that match prefixes best, ablated together, and the same number of others, drawn at random: "
    f"{DRAWS} draws of each size, the band from the lowest to the highest. One such head alone is often not missed, as "
    "others do the same."
)
HEIGHT_PX = 280
T = TypeVar("T")


def draw_sets(
    shape: ModelShape,
    work: Work[dict[HeadSet, T]],
    shows: str,
    about: str,
    draw: Callable[[dict[HeadSet, T]], None],
    since_s: float,
) -> None:
    """Draws by `draw` what is known of the sets, the full model and one of them at least, and the button that measures
    the rest; `about` is its help. Until something is known, it says what it `shows`."""
    stored = max(work.stored(), key=len, default={})
    if len(stored) < n_sets(shape) and not work.under_way:
        is_empty = not any(each.draw for each in stored)
        with empty_state("curves", shows, work.is_read, key="empty together") if is_empty else nullcontext():
            work.offer("Ablate the strongest together, and random others", "science", about, by_size=True, least_s=0.0)

    def draw_so_far() -> None:
        work.line()
        known = max((stored, work.found or {}), key=len)
        if len(known) > 1:
            draw(known)

    live(work.watched(), draw_so_far, since_s)


def rows(shape: ModelShape, values: Mapping[HeadSet, Mapping[str, Any]]) -> pd.DataFrame:
    """Returns one row per set: `size` heads, `kind` (STRONGEST or RANDOM), `draw`, `heads` by name, and its values.
    Both kinds begin at the full model."""
    found = []
    for each, value in values.items():
        if each.draw and not each.heads:  # a model of one head has no others
            continue
        kinds = (STRONGEST, RANDOM) if not each.heads else (RANDOM if each.draw else STRONGEST,)
        about = {"size": len(each.heads), "draw": each.draw, "heads": each.names(shape)}
        found += [{**about, "kind": kind, **value} for kind in kinds]
    return pd.DataFrame(found)


def by_size(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Returns by kind and size the mean of a column, the lowest and the highest draw, and the number of draws."""
    grouped = frame.groupby(["kind", "size"], sort=False)[column]
    found = grouped.agg(value="mean", low="min", high="max", n="count").reset_index()
    named = frame[frame["kind"].eq(STRONGEST)].set_index("size")["heads"]
    return found.assign(heads=found["size"].map(named).where(found["kind"].eq(STRONGEST), ""))


def chart(frame: pd.DataFrame, title: str, form: str, domain: tuple[float, float] | None = None) -> charts.Picture:
    """Returns the value against the number of ablated heads, from `by_size`; `form` is d3's format of the value."""
    counts = tuple(sorted(int(size) for size in frame["size"].unique()))
    return charts.picture(_chart(title, form, domain, counts), sets=frame)


@charts.kept
def _chart(title: str, form: str, domain: tuple[float, float] | None, counts: tuple[int, ...]) -> charts.Template:
    scale = alt.Scale(domain=list(domain)) if domain else alt.Scale(zero=False)
    y = alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(format=form, tickCount=5))
    axis = alt.Axis(labelAngle=0, grid=False)
    base = charts.named_chart("sets").encode(
        x=alt.X("size:O", title="Heads ablated together", sort=list(counts), scale=alt.Scale(padding=0.1), axis=axis),
        color=alt.Color("kind:N", scale=alt.Scale(domain=DOMAIN), legend=None),
        tooltip=charts.tips(
            f"size:O|Heads out; kind:N|Which; value:Q|{title}|{form}",
            f"low:Q|lowest draw|{form}; high:Q|highest draw|{form}; heads:N|Heads",
        ),
    )
    band = base.transform_filter(alt.datum.kind == RANDOM).mark_area(opacity=0.2)
    last = base.transform_filter(alt.datum.size == max(counts, default=0))  # each line's name is at its end
    names = [
        charts.written(last.transform_filter(alt.datum.kind == kind), 12, align="right", dy=dy).encode(
            y=y, text="kind:N", color=alt.Undefined
        )
        for kind, dy in ((RANDOM, -14), (STRONGEST, 16))
    ]
    return charts.template(
        HEIGHT_PX,
        band.encode(y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q"),
        base.mark_line(strokeWidth=2.5).encode(y=y),
        base.mark_point(filled=True, size=55, opacity=1).encode(y=y),
        *names,
    )


def in_words(frame: pd.DataFrame, value: Callable[[float], str]) -> str:
    """Describes the effect of the largest set and of random ones, and that of one head alone, from `by_size`; `value`
    formats a number."""
    of: dict[str, dict[int, Any]] = {
        str(kind): {row["size"]: row for row in rows.to_dict("records")}
        for kind, rows in frame.dropna(subset=["value"]).groupby("kind")
    }
    strongest, others = of.get(STRONGEST, {}), of.get(RANDOM, {})
    known = strongest.keys() & others.keys()
    if len(known) < 2:
        return "Not measured yet."
    most = max(sorted(known, reverse=True), key=lambda size: abs(strongest[size]["value"] - others[size]["value"]))
    random = others[most]
    words = f"The full model: **{value(strongest[0]['value'])}**. Without the **{_heads(most)}** that match prefixes "
    words += (
        f"best: **{value(strongest[most]['value'])}**; without the same number of others **{value(random['value'])}** "
    )
    words += f"({value(random['low'])} to {value(random['high'])} in {random['n']:.0f} draws)."
    alone = f" Without the best one alone: {value(strongest[1]['value'])}." if most > 1 and 1 in known else ""
    return words + alone


def _heads(count: int) -> str:
    return "1 head" if count == 1 else f"{count} heads"
