"""Scores of the heads of two models side by side: maps on one scale, one dot per head, the largest differences; used
on Importance and Induction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from engine.models.session import Target
from engine.shapes import ModelShape
from engine.studies.surveys import Agreed, agreed, farthest
from pages.ui.comparison.second import shapes_in_words
from pages.ui.figures import charts
from pages.ui.figures.charts import Picture
from pages.ui.figures.colours import GREY, UNDEFINED
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.page.tables import number, p_in_words, plain, whole_percent

Scale = Literal["root", "straight", "around zero"]
AGREED_HELP = "Spearman's rank correlation over the heads, each with the head in its place in the other model."


def rows(shape: ModelShape, first: np.ndarray, second: np.ndarray) -> pd.DataFrame:
    """Returns one row per head: layer, head, name, both models' scores (first, second), and second minus first."""
    layer, head = np.divmod(np.arange(shape.n_heads_total), shape.n_heads)
    frame = pd.DataFrame({"layer": layer, "head": head, "name": shape.head_names})
    frame = frame.assign(first=np.ravel(first), second=np.ravel(second))
    return frame.assign(difference=frame["second"] - frame["first"])


def scale_of(scores: Sequence[np.ndarray], by_root: bool) -> tuple[Scale, float]:
    """Returns (color scale, its end) for the scores of both: around zero if any is negative."""
    every = np.concatenate([np.ravel(each) for each in scores])
    reach = float(np.nanmax(np.abs(every), initial=0.0)) or 1.0
    if np.nanmin(every, initial=0.0) < 0:
        return "around zero", reach
    return "root" if by_root else "straight", reach


def score_map(scores: np.ndarray, title: str, form: str, scale: tuple[Scale, float]) -> Picture:
    """Returns layers x heads of scores (layer, head), colored on a scale shared with another map."""
    layer, head = np.divmod(np.arange(scores.size), scores.shape[1])
    names = [f"L{of}H{at}" for of, at in zip(layer, head, strict=True)]
    frame = pd.DataFrame({"layer": layer, "head": head, "name": names, "score": scores.ravel()})
    return charts.picture(_score_map(title, form, len(scores), *scale), heads=frame)


@charts.kept
def _score_map(title: str, form: str, n_layers: int, kind: Scale, reach: float) -> charts.Template:
    row_px = charts.row_height(n_layers)
    straight = alt.Scale(type="sqrt" if kind == "root" else "linear", domain=[0, reach], nice=False)
    look: dict[str, Any] = {"orient": "top", "direction": "horizontal", "titleOrient": "left", "titleLimit": 400}
    legend = alt.Legend(gradientLength=200, gradientThickness=12, tickCount=3, format=form, **look)
    scale = charts.around_zero(reach) if kind == "around zero" else straight
    colour = alt.Color("score:Q", title=title, scale=scale, legend=legend)
    known = alt.condition("!isValid(datum['score'])", alt.value(UNDEFINED), colour)
    cells = charts.head_grid(f"score:Q|{title}|{form}").mark_rect(**charts.CELL, invalid="show").encode(color=known)
    return charts.template(row_px * n_layers + charts.AXIS_PX + 48, cells)


def scatter(frame: pd.DataFrame, names: Sequence[str], form: str) -> Picture:
    """Returns one dot per head of `rows`: the first model's score across, the second's up; equal on the line."""
    ends = frame[["first", "second"]].to_numpy()
    low, high = (float(end(ends, initial=0.0)) for end in (np.nanmin, np.nanmax))
    n_layers = int(frame["layer"].max()) + 1
    line = pd.DataFrame({"x": [low], "x2": [high or 1.0]})
    return charts.picture(_scatter(tuple(names), form, n_layers, low, high or 1.0), heads=frame, line=line)


@charts.kept
def _scatter(names: tuple[str, ...], form: str, n_layers: int, low: float, high: float) -> charts.Template:
    scale, axis = alt.Scale(domain=[low, high]), alt.Axis(format=form, tickCount=5)
    x = alt.X("first:Q", title=names[0], scale=scale, axis=axis)
    y = alt.Y("second:Q", title=names[1], scale=scale, axis=axis)
    line = charts.named_chart("line").mark_rule(color=GREY, strokeDash=[4, 4])
    line = line.encode(x=alt.X("x:Q", scale=scale), x2="x2:Q", y=alt.Y("x:Q", scale=scale), y2="x2:Q")
    lines = charts.tips("name:N|Head", f"difference:Q|Second less first|{form}")
    lines += [
        alt.Tooltip(f"{of}:Q", title=name, format=form) for of, name in zip(("first", "second"), names, strict=True)
    ]
    colour = charts.by_layer(n_layers, orient="top", direction="horizontal", titleOrient="left")
    points = charts.named_chart("heads").mark_point(filled=True, size=70, opacity=0.85)
    return charts.template(320, line, points.encode(x=x, y=y, color=colour, tooltip=lines))


def in_words(found: Agreed, noun: str) -> str:
    """Returns a sentence such as "Heads: SRCC **+0.97**, 95% interval +0.94 to +0.99, p < 0.001; of the highest 30% 8
    of 9 are the same"."""
    if found.srcc != found.srcc:
        return f"{noun}: SRCC undefined, as one of the two scores all alike"
    srcc, low, high = (number(each, sign=True) for each in (found.srcc, found.low, found.high))
    ends = "" if found.low != found.low else f", 95% interval {low} to {high}"
    same = f"of the highest 30% {round(found.overlap * found.n_top)} of {found.n_top} are the same"
    return f"{noun}: SRCC **{srcc}**{ends}, {p_in_words(found.p)}; {same}"


def agreed_rows(pairs: dict[str, tuple[np.ndarray, np.ndarray]]) -> pd.DataFrame:
    """Returns one row for each named pair of scores: how far the two agree."""
    return pd.DataFrame([{"of": name, **asdict(agreed(*pair))} for name, pair in pairs.items()])


def draw_pair(
    models: Sequence[Target],
    scores: Sequence[np.ndarray],
    noun: str,
    look: tuple[str, str],
    key: str,
    sheet: Sheet,
    draw_next: Callable[[pd.DataFrame], None],
    more: Mapping[str, Sequence[np.ndarray]] | None = None,
    by_root: bool = False,
) -> None:
    """Draws two maps on one color scale, and, if their heads can be paired, how far the `models` agree: in words, on
    these scores, which `noun` names, and on `more`; as one dot per head; and what `draw_next` draws of `rows` next to
    the dots. `look`: (title of the maps, format)."""
    (title, form), names, scale = look, [each.spec.in_words for each in models], scale_of(scores, by_root=by_root)
    for name, each, at in zip(names, scores, st.columns(2, gap="large"), strict=True):
        best = int(np.nanargmax(each)) if np.isfinite(each).any() else 0
        words = f"{name}: highest in L{best // each.shape[1]}H{best % each.shape[1]}"
        at.markdown(f"**{plain(name)}**")
        sheet.draw(f"{title}, {name}", score_map(each, title, form, scale), f"{key} map of {name}", words, at)
    if why := shapes_in_words(*models):
        st.caption(why)
        return
    known = {noun: scores, **(more or {})}
    frame = sheet.tables[f"Two models, {noun}"] = rows(models[0].shape, *scores)
    st.markdown(said := "  \n".join(in_words(agreed(*each), name) for name, each in known.items()), help=AGREED_HELP)
    sheet.says.append(said)
    scatter_at, table_at = st.columns([5, 6], gap="large")
    sheet.draw("Two models, heads", scatter(frame, names, form), f"{key} second scatter", said, scatter_at)
    with table_at:
        draw_next(frame)


def draw_farthest(names: Sequence[str], write: Any, frame: pd.DataFrame) -> None:
    """Draws the heads of `rows` whose scores differ most as a table; `write` formats a score."""
    st.markdown("**Where they differ most**")
    places = list(farthest(frame["first"].to_numpy(), frame["second"].to_numpy(), 10))
    titles = {"name": "Head", "first": names[0], "second": names[1], "difference": "Second less first"}
    formats = {name: write for name in ("first", "second", "difference")}
    shown = frame.iloc[places].reset_index(drop=True)
    draw_table(shown, titles, "The heads whose scores differ most", formats=formats, height=340)


def draw_agreed(frame: pd.DataFrame, title: str, height: int) -> None:
    """Draws `agreed_rows` as a table; `title` says what each row is of."""
    column = st.column_config.Column
    about = "Of the 30% highest of one, so many are among the other's."
    titles = {"of": title, "srcc": column("SRCC", help=AGREED_HELP), "interval": "95% interval", "p": "p",
              "overlap": column("Top 30%", help=about)}  # fmt: skip
    ends = zip(frame["low"], frame["high"], strict=True)
    signed = partial(number, sign=True)
    frame = frame.assign(interval=["–" if low != low else f"{signed(low)} to {signed(high)}" for low, high in ends])
    formats = {"srcc": signed, "p": partial(number, digits=3), "overlap": whole_percent}
    draw_table(frame, titles, "How far the two models agree", formats=formats, height=height)
