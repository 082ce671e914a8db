"""Charts of a run that is being trained, which grow with its log: takes a DataFrame, returns a picture.

The axis of tokens reaches to the end of the run from the start, so that lines grow and nothing else moves.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from engine.progress import in_time
from engine.training.recipe import Recipe
from engine.training.running import best
from engine.views.colors import GREY, MARK
from pages.ui.figures import charts
from pages.ui.page.tables import number
from pages.ui.training.charts import TokenAxis, axis_end
from pages.ui.training.finding import half_strength
from pages.ui.training.tables import in_tokens

HEIGHT = 130
RUN, CONTROL = "run", "control"
HEADS = {"prefix_matching": "Prefix matching, each head", "previous_token": "Previous token, each head"}
NATS = {"gain": "In-context gain, nats", "loss": "Loss of held-out text, nats"}
COPIES = {"first_copy": "first", "second_copy": "second"}
N_LAST, RISE = 5, 0.3  # a held-out loss rises if the median of its last measurements is so many nats above its lowest
Log = Sequence[Mapping[str, Any]]


def head_rows(log: Log, who: str) -> pd.DataFrame:
    """Returns one row per head and log entry: who, tokens, layer, name, and both scores."""
    rows = [
        {"who": who, "tokens": line["tokens"], "layer": layer, "name": f"L{layer}H{head}",
         **{score: line[score][layer][head] for score in HEADS}}
        for line in log for layer, heads in enumerate(line["prefix_matching"]) for head in range(len(heads))
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["who", "tokens", "layer", "name", *HEADS])


def rows_of(log: Log, who: str) -> pd.DataFrame:
    """Returns one row per log entry: who, tokens, in-context gain, loss and the loss of both copies."""
    names = ["tokens", *NATS, *COPIES]
    rows = [{**line, "who": who, "gain": -line["icl"]} for line in log]
    return pd.DataFrame(rows, columns=["who", *names])


def pictures(recipe: Recipe, log: Log, control: Log = ()) -> dict[str, charts.Picture]:
    """Returns the charts by title: of the run in color, of its control in gray; those of text if the run reads any."""
    heads = pd.concat([head_rows(log, RUN), head_rows(control, CONTROL)])
    rows = pd.concat([rows_of(log, RUN), rows_of(control, CONTROL)])
    copies = rows.melt(["who", "tokens"], list(COPIES), "copy", "nats").replace({"copy": COPIES})
    end = axis_end(recipe.n_steps * recipe.step_tokens)
    found = {title: charts.picture(_heads_template(score, title, end, recipe.n_layers), heads=heads)
             for score, title in HEADS.items()}  # fmt: skip
    title = "Loss on the first and second copy, nats"
    found[title] = charts.picture(_copies_template(title, end), copies=copies)
    marks = pd.DataFrame({"tokens": [at for at in [rises_from(log)] if at is not None]})
    for name, title in NATS.items() if recipe.text_tokens else ():
        shown = marks if name == "loss" else marks[:0]
        found[title] = charts.picture(_curve_template(name, title, end), rows=rows, marks=shown)
    return found


def rises_from(log: Log) -> float | None:
    """Returns the tokens at which the held-out loss is lowest, if it rises from there to the end of the log."""
    lowest = min(range(len(log)), key=lambda at: log[at]["loss"], default=0)
    later = [line["loss"] for line in log[lowest + 1 :]]
    is_rising = len(later) >= N_LAST and float(np.median(later[-N_LAST:])) > log[lowest]["loss"] + RISE
    return float(log[lowest]["tokens"]) if is_rising else None


def describe(recipe: Recipe, log: Log, control: Log = ()) -> str:
    """Describes the run so far in Markdown: when induction heads form, what they change, and its control."""
    words = recipe.in_full if recipe.text_tokens else f"{recipe.in_short} on repeated random tokens"
    if not log:
        return f"**{words}**: the untrained model is measured in a few seconds."
    line = log[-1]
    if np.isnan(line["loss"]):  # no text is read yet
        return f"**{words}**, untrained: {_describe(line)}. Training begins once the text for its vocabulary is read."
    formed = half_strength(np.array([each["tokens"] for each in log]), np.array([best(each) for each in log]))
    heads = "no induction head so far" if formed is None else f"induction heads form at {in_tokens(formed)}"
    said = [f"**{words}: {heads}.** After {in_tokens(line['tokens'])} ({in_time(line['seconds'])}): {_describe(line)}."]
    if control:
        said.append(f"Gray, its control after {in_tokens(control[-1]['tokens'])}: {_describe(control[-1])}.")
    if recipe.text_tokens:
        said.append(f"In-context gain {number(-line['icl'], sign=True)} nats.")
    return " ".join(said)


def _describe(line: Mapping[str, Any]) -> str:
    first, second = number(line["first_copy"], 1), number(line["second_copy"], 1)
    return f"best prefix match {number(best(line))}, loss {first} nats on a first copy and {second} on the second"


@charts.kept
def _heads_template(score: str, title: str, end: float, n_layers: int) -> charts.Template:
    y = alt.Y(f"{score}:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=3))
    base = charts.named_chart("heads").encode(x=TokenAxis(0.0, end).x(), y=y, detail="name:N")
    colour = charts.by_layer(n_layers, orient="top-left", direction="horizontal", symbolType="stroke", padding=0,
                             symbolStrokeWidth=3, titleOrient="left", offset=0)  # fmt: skip
    if n_layers == 1:
        colour = colour.copy()
        colour["legend"] = None
    tooltip = charts.tips(f"name:N|Head; tokens:Q|Tokens|,.0f; {score}:Q|{title}|.3f")
    return _template(title, _grey(base, tooltip), *_own(base, 1.6, color=colour, tooltip=tooltip))


@charts.kept
def _copies_template(title: str, end: float) -> charts.Template:
    base = charts.named_chart("copies").encode(x=TokenAxis(0.0, end).x(), y=_y("nats"))
    legend = alt.Legend(orient="top-right", title="Copy", direction="horizontal", symbolType="stroke", padding=0,
                        titleOrient="left", offset=0)  # fmt: skip
    colour = alt.Color("copy:N", scale=alt.Scale(domain=list(COPIES.values()), range=[GREY, MARK]), legend=legend)
    tooltip = charts.tips("copy:N|Copy; tokens:Q|Tokens|,.0f; nats:Q|Nats a token|.2f")
    control = base.transform_filter(alt.datum.copy == COPIES["second_copy"])
    return _template(title, _grey(control, tooltip), *_own(base, 2, color=colour, tooltip=tooltip))


@charts.kept
def _curve_template(name: str, title: str, end: float) -> charts.Template:
    base = charts.named_chart("rows").encode(x=TokenAxis(0.0, end).x(), y=_y(name))
    tooltip = charts.tips(f"tokens:Q|Tokens|,.0f; {name}:Q|{title}|.3f")
    mark = charts.named_chart("marks").encode(x=TokenAxis(0.0, end).x())
    rule = mark.mark_rule(color=GREY, strokeDash=[3, 3])
    named = charts.written(mark, 11, align="left", baseline="top", dx=4)
    named = named.encode(y=alt.value(2), text=alt.value("rises from here"))
    return _template(title, _grey(base, tooltip), *_own(base, 2, tooltip=tooltip), rule, named)


def _own(base: alt.Chart, width: float, **look: Any) -> tuple[alt.Chart, alt.Chart]:
    """Returns the lines of the run, and dots for the untrained model: a line of one point is not visible."""
    own = base.transform_filter(alt.datum.who == RUN).encode(**look)
    dots = own.transform_filter(alt.datum.tokens == 0).mark_point(filled=True, size=30, opacity=1)
    return own.mark_line(strokeWidth=width), dots


def _grey(base: alt.Chart, tooltip: Any) -> alt.Chart:
    control = base.transform_filter(alt.datum.who == CONTROL)
    return control.mark_line(strokeWidth=1.2, color=GREY, strokeDash=[4, 3]).encode(tooltip=tooltip)


def _y(name: str) -> alt.Y:
    return alt.Y(f"{name}:Q", title=None, scale=alt.Scale(zero=name == "nats"), axis=alt.Axis(tickCount=4))


def _template(title: str, *layers: Any) -> charts.Template:
    head = {"text": title, "anchor": "start", "fontSize": 13, "offset": 6}
    return {**charts.template(HEIGHT + charts.AXIS_PX, *layers), "title": head}
