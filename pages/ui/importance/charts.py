"""Importance of heads and FFNs over many tasks and shot counts: frames with one row a component, charts and sentences.

A rank of 1 is the first to go, as pruning would take them: equal scores in the order of their tie breaks.
"""

import json
from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from engine.importance.importance import Scores
from engine.importance.rankings import Agreement, n_top, order
from engine.questions.requests import TaskSpec
from engine.studies.surveys import in_words, shots_in_words
from pages.ui.prune.tables import p_in_words
from pages.ui.shared.charts import AXIS_PX, CELL, head_grid, inked, named_chart, row_height, with_data, written

TITLES = {"heads": "Gradient", "gate": "Gate gradient", "heads-oracle": "Accuracy lost without it"}
MAX_MARKS = 15_000  # cells of one chart: with more the page takes seconds to make it and the browser to draw it
ACROSS = 6  # maps beside one another
WIDTH_PX = 850  # of the page at 1280 px: what heights are chosen for; widths follow the window
LEGEND_PX = 48  # a legend on top, which Streamlit counts as part of the height, like AXIS_PX
TASK_PX, SHOTS_PX, GAP_PX = 18, 15, 12  # a map's two lines of title and what is left under it
ROW_PX = 17  # of a task in the FFN map
ROOM_FOR_NUMBERS = 28  # layers: with more, cells of the FFN map hold only the sign
RANK = alt.Tooltip("rank:Q", title="Rank (1 = first to go)")
WHERE = [alt.Tooltip("task:N", title="Task"), alt.Tooltip("shots:Q", title="Solved examples")]


def head_rows(scores: Mapping[TaskSpec, Scores]) -> pd.DataFrame:
    """task, shots, layer, head, name, score, rank of every head for every task and shot count."""
    frames = [_ranked(found.scores, found.tie_break, task) for task, found in scores.items()]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def ffn_rows(scores: Mapping[TaskSpec, Scores]) -> pd.DataFrame:
    """task, shots, layer, name, score (share of the questions, 0-1) and rank of every FFN, for every task and count."""
    rows = head_rows(scores)  # an FFN a layer: as if it had one head
    return rows if rows.empty else rows.drop(columns="head").assign(name=[f"F{layer}" for layer in rows["layer"]])


def aggregate_rows(scores: Mapping[TaskSpec, Scores], mean: Scores) -> pd.DataFrame:
    """layer, head, name, score and rank by `mean` (engine.studies.surveys.together), and `kept`: how many of the tasks
    and shot counts have the head among their 30 % most important."""
    rows = _ranked(mean.scores, mean.tie_break)
    kept = np.zeros(len(rows), int)
    for found in scores.values():
        kept[_top(order(found.scores, found.tie_break))] += 1
    return rows.assign(kept=kept)


def best_first(rows: pd.DataFrame, n_cells: int) -> pd.DataFrame:
    """`aggregate_rows` under the titles of a table on screen."""
    titles = {"name": "Head", "score": "Mean", "rank": "Rank", "kept": f"In the top 30 % of (out of {n_cells})"}
    digits = [float(f"{score:.3g}") for score in rows["score"]]
    return rows.assign(score=digits).sort_values("rank", ascending=False)[list(titles)].rename(columns=titles)


def agreement_rows(found: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """layer, head, name and each head score in a column of its own; `oracle_points` is the accuracy lost, in points."""
    rows = _ranked(found["heads-oracle"], None).drop(columns=["score", "rank"])
    rows = rows.assign(**{what: scores.ravel() for what, scores in found.items()})
    return rows.assign(oracle_points=100 * rows["heads-oracle"])


def shown_maps(tasks: Sequence[TaskSpec], front: TaskSpec, n_heads: int) -> list[TaskSpec]:
    """All of `tasks` if their maps have at most MAX_MARKS cells, else as many as do, from the task in front on."""
    most = max(1, MAX_MARKS // n_heads)
    if len(tasks) <= most:
        return list(tasks)
    names = [task.name for task in tasks]
    at = names.index(front.name) if front.name in names else 0
    n_shots = len({task.shots for task in tasks})
    return [*tasks[at:], *tasks[:at]][: most - most % n_shots if most >= n_shots else most]


def score_maps(rows: pd.DataFrame, title: str, common: bool) -> alt.LayerChart:
    """A small map layers x heads for each task and shot count of `head_rows`; colours run to each map's own highest
    score, or where `common` to the highest of all. Scores that can be negative have a scale around 0."""
    maps, row_px = _places(rows)
    largest = float(rows["score"].abs().max()) or 1.0
    colour = alt.Color(
        "shade:Q",
        title=title if common else f"{title}, as share of the map's highest",
        scale=_scale(rows["score"], largest if common else 1.0),
        legend=_legend(".2~g" if common else ".0%"),
    )
    x = alt.X("x:Q", title="Heads, 0 on the left", axis=_bare(), scale=_exactly(0, maps["end"].max()))
    y = alt.Y("y:Q", title="Layers, 0 on top", axis=_bare(), scale=_exactly(float(maps["bottom"].max()), 0))
    tooltip = [*WHERE, alt.Tooltip("name:N", title="Head"), alt.Tooltip("score:Q", title=title, format=".3~g"), RANK]
    # what all cells of a map share is in the expressions, not in each row: it would double the time to draw
    lists = {name: json.dumps(maps[name].tolist()) for name in ("x", "y", "task", "shots", "highest")}
    base = named_chart("heads").transform_calculate(
        x=f"{lists['x']}[datum.map] + datum.head", y=f"{lists['y']}[datum.map] + {row_px} * datum.layer",
        task=f"{lists['task']}[datum.map]", shots=f"{lists['shots']}[datum.map]",
        name="'L' + datum.layer + 'H' + datum.head",
        shade="datum.score" if common else f"datum.score / {lists['highest']}[datum.map]",
    )  # fmt: skip
    base = base.transform_calculate(x2="datum.x + 1", y2=f"datum.y + {row_px}")
    edge = CELL if row_px >= 6 else {"strokeWidth": 0}
    rect = base.mark_rect(**edge).encode(x=x, y=y, x2="x2:Q", y2="y2:Q", color=colour, tooltip=tooltip)
    frame = named_chart("maps").mark_rect(filled=False, stroke="#8a949e", strokeWidth=1).encode(
        x=x, x2="x2:Q", y=y, y2="bottom:Q", tooltip=alt.value(None)
    )  # fmt: skip
    words = inked(named_chart("maps").encode(x=x, y=y))
    names = words.transform_filter("datum.first").mark_text(align="left", baseline="bottom", dy=-SHOTS_PX, fontSize=12,
                                                            fontWeight=600).encode(text="task:N")  # fmt: skip
    counts = words.mark_text(align="left", baseline="bottom", dy=-3, fontSize=11, opacity=0.8).encode(text="count:N")
    chart = alt.layer(rect, frame, names, counts).resolve_scale(color="independent")
    chart = chart.properties(height=float(maps["bottom"].max()) + LEGEND_PX + AXIS_PX)
    numbered = rows.merge(maps.assign(map=maps.index)[["task", "shots", "map"]], on=["task", "shots"], how="left")
    return with_data(chart, heads=numbered[["map", "layer", "head", "score", "rank"]], maps=maps)


def aggregate_map(rows: pd.DataFrame, title: str, n_cells: int) -> alt.LayerChart:
    """Layers x heads of `aggregate_rows`."""
    n_layers = int(rows["layer"].max()) + 1
    height = row_height(n_layers)
    kept = alt.Tooltip("kept:Q", title=f"In the top 30 % of (out of {n_cells})")
    scale = _scale(rows["score"], float(rows["score"].abs().max()) or 1.0)
    colour = alt.Color("score:Q", title=title, scale=scale, legend=_legend(".2~g"))
    base = head_grid(alt.Tooltip("score:Q", title=title, format=".3~g"), RANK, kept)
    chart = alt.layer(base.mark_rect(**CELL).encode(color=colour))
    return with_data(chart.properties(height=height * n_layers + LEGEND_PX + AXIS_PX), heads=rows)


def ffn_map(rows: pd.DataFrame) -> alt.LayerChart:
    """Tasks x layers of `ffn_rows`, in accuracy points lost, with the mean on top: the same colours on both sides of 0,
    the number in each cell, or where there is no room a minus sign on those whose removal helps."""
    mean = rows.groupby("layer", as_index=False)["score"].mean()
    mean = mean.assign(task="mean", row="mean of all", name=[f"F{layer}" for layer in mean["layer"]])
    named = rows.assign(row=[in_words(TaskSpec(*of)) for of in zip(rows["task"], rows["shots"], strict=True)])
    cells = pd.concat([mean, named]) if named["row"].nunique() > 1 else named
    points = 100 * cells["score"]
    numbers = [_signed(value) for value in points]
    n_layers = int(rows["layer"].max()) + 1
    if n_layers > ROOM_FOR_NUMBERS:
        numbers = ["−" if number.startswith("−") else "" for number in numbers]
    cells = cells.assign(points=points, number=numbers)
    reach = max(10.0, 10 * np.ceil(points.abs().max() / 10))
    axis = {"ticks": False, "domain": False}
    every_task = alt.Axis(labelLimit=240, labelOverlap=False, labelBound=False, labelFlush=False, **axis)
    base = named_chart("ffns").encode(
        x=alt.X("layer:O", title="FFN of layer", axis=alt.Axis(labelAngle=0, labelOverlap=True, **axis)),
        y=alt.Y("row:N", title="Task", sort=None, axis=every_task),
        tooltip=[*WHERE, alt.Tooltip("name:N", title="FFN"),
                 alt.Tooltip("points:Q", title="Accuracy points lost without it", format="+.1f"), RANK],
    )  # fmt: skip
    colour = alt.Color("points:Q", title="Accuracy points lost without it (negative: its removal helps)",
                       scale=_around_zero(reach), legend=_legend("+.0f"))  # fmt: skip
    # pale, so that the theme's text can be read on every cell
    rect = base.mark_rect(**CELL, fillOpacity=0.6).encode(color=colour)
    text = written(base, 10).encode(text="number:N")
    height = ROW_PX * cells["row"].nunique() + LEGEND_PX + AXIS_PX
    return with_data(alt.layer(rect, text).resolve_scale(color="independent").properties(height=height), ffns=cells)


def agreement_scatter(rows: pd.DataFrame, what: str) -> alt.LayerChart:
    """A gradient score against the oracle, one point a head of `agreement_rows`, coloured by layer."""
    x = alt.X("oracle_points:Q", title="Accuracy points lost without the head", axis=alt.Axis(format="+.1f"))
    y = alt.Y(f"{what}:Q", title=f"Importance by {TITLES[what].lower()}", scale=alt.Scale(zero=True))
    layers = sorted(set(np.linspace(0, rows["layer"].max(), 5).astype(int).tolist()))
    colour = alt.Color("layer:Q", title="Layer", scale=alt.Scale(scheme="viridis"), legend=_legend("d", layers))
    tooltip = [alt.Tooltip("name:N", title="Head"), alt.Tooltip(f"{what}:Q", title=TITLES[what], format=".3~g"),
               alt.Tooltip("oracle_points:Q", title="Points lost", format="+.1f")]  # fmt: skip
    points = named_chart("heads").mark_point(filled=True, size=80, opacity=0.85)
    points = points.encode(x=x, y=y, color=colour, tooltip=tooltip)
    return with_data(alt.layer(points).properties(height=300), heads=rows)


def heads_in_words(rows: pd.DataFrame, n_cells: int, how: str) -> str:
    """The takeaway of `aggregate_rows`."""
    best = rows.loc[rows["rank"].idxmax()]
    words = f"**{best['name']}** matters most: in {int(best['kept'])} of {n_cells} it is among the top 30 %"
    if how == "scores" and (rows["score"] >= 0).all() and rows["score"].sum() > 0:
        share = rows["score"].iloc[_top(rows["rank"].to_numpy().argsort())].sum() / rows["score"].sum()
        words += f"; the top 30 % of the heads hold {100 * share:.0f} % of all importance"
    return words + "."


def ffns_in_words(rows: pd.DataFrame) -> str:
    """Which FFNs help when removed, and where."""
    n_cells = len(rows) // (int(rows["layer"].max()) + 1)
    helped = rows[rows["score"] < 0].groupby("name").size().sort_values(ascending=False, kind="stable")
    if helped.empty:
        return f"Removal never helps: out of {n_cells}, the model does better without an FFN in 0."
    worst = rows.loc[rows["score"].idxmin()]
    named = ", ".join(f"**{name}** in {count}" for name, count in helped.head(4).items())
    more = f" and {len(helped) - 4} others" if len(helped) > 4 else ""
    words = f"Removal can help: out of {n_cells}, the model does better without {named}{more}"
    at = in_words(TaskSpec(worst["task"], int(worst["shots"])))
    return f"{words}; most of all without {worst['name']} in {at}, by {-100 * worst['score']:.1f} points."


def agreement_in_words(found: Agreement, a: str, b: str) -> str:
    """Such as "SRCC +0.62, 95 % interval +0.31 to +0.81, p = 0.001"."""
    i, j = found.labels.index(a), found.labels.index(b)
    if np.isnan(found.srcc[i, j]):
        return "SRCC undefined: one of the two scores is the same for all heads."
    interval = f"95 % interval {found.low[i, j]:+.2f} to {found.high[i, j]:+.2f}"
    return f"SRCC **{found.srcc[i, j]:+.2f}**, {interval}, {p_in_words(found.p[i, j])}"


def _ranked(scores: np.ndarray, tie_break: np.ndarray | None, task: TaskSpec | None = None) -> pd.DataFrame:
    """One row a component; its layer and head, or head 0 where there is one component a layer."""
    rank = np.empty(scores.size, int)
    rank[order(scores, tie_break)] = np.arange(1, scores.size + 1)
    layer, head = np.divmod(np.arange(scores.size), scores.size // len(scores))
    names = [f"L{of}H{at}" for of, at in zip(layer, head, strict=True)]
    of = {} if task is None else {"task": task.name, "shots": task.shots}
    return pd.DataFrame(of | {"layer": layer, "head": head, "name": names, "score": scores.ravel(), "rank": rank})


def _top(least_first: np.ndarray) -> np.ndarray:
    return least_first[-n_top(len(least_first)) :]


def _places(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """(one row a map: its corners, x in heads and y in pixels, titles and highest score; pixels of a layer's row).

    One chart with places of its own, not a facet: a facet's width cannot follow the window.
    """
    names, shots = list(dict.fromkeys(rows["task"])), sorted(set(rows["shots"]))
    n_layers, n_heads = int(rows["layer"].max()) + 1, int(rows["head"].max()) + 1
    beside = max(1, min(len(names), ACROSS // len(shots)))  # tasks in a row of maps
    gap, wide = n_heads / 12, n_heads / 5
    task_width = len(shots) * n_heads + (len(shots) - 1) * gap + wide
    row_px = int(np.clip(0.75 * WIDTH_PX / (beside * task_width), 3, max(3, min(26, 420 // n_layers))))
    maps = rows.groupby(["task", "shots"], sort=False)["score"].agg(lambda scores: scores.abs().max() or 1.0)
    maps = maps.rename("highest").reset_index()
    down, across = np.divmod(maps["task"].map(names.index), beside)
    x = across * task_width + maps["shots"].map(shots.index) * (n_heads + gap)
    y = down * (TASK_PX + SHOTS_PX + row_px * n_layers + GAP_PX) + TASK_PX + SHOTS_PX
    count = [shots_in_words(shots) for shots in maps["shots"]]
    maps = maps.assign(x=x, x2=x + n_heads, y=y, bottom=y + row_px * n_layers, count=count)
    return maps.assign(first=~maps["task"].duplicated(), end=beside * task_width - wide), row_px


def _scale(scores: pd.Series, largest: float) -> alt.Scale:
    """From 0, by the root: most heads score far below the best few. With negative scores, straight and around 0."""
    if (scores < 0).any():
        return _around_zero(largest)
    return alt.Scale(type="sqrt", domain=[0, largest])


def _around_zero(reach: float) -> alt.Scale:
    """Vega would go from blue to orange through green."""
    return alt.Scale(domain=[-reach, reach], domainMid=0, interpolate="rgb")


def _signed(points: float) -> str:
    text = f"{points:+.1f}".replace("-", "−")
    return "0" if text[1:] == "0.0" else text


def _legend(number: str, values: Sequence[int] | None = None) -> alt.Legend:
    only = {} if values is None else {"values": values}
    return alt.Legend(orient="top", direction="horizontal", format=number, tickCount=5, gradientLength=200,
                      gradientThickness=12, titleOrient="left", titleLimit=500, **only)  # fmt: skip


def _bare() -> alt.Axis:
    return alt.Axis(labels=False, ticks=False, domain=False, grid=False)


def _exactly(low: float, high: float) -> alt.Scale:
    return alt.Scale(domain=[low, high], nice=False, zero=False)
