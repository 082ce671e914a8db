"""Charts of a run that is being trained, which grow with its log: takes a DataFrame, returns a picture.

The axis of tokens reaches to the end of the run from the start, so that lines grow and nothing else moves.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from engine.training.recipe import Recipe, law_tokens
from pages.ui.figures import charts
from pages.ui.figures.colours import GREY, MARK
from pages.ui.training.charts import TokenAxis, axis_end

HEIGHT = 130
RUN, CONTROL = "run", "control"
HEADS = {"prefix_matching": "Prefix matching, each head", "previous_token": "Previous token, each head"}
NATS = {"icl": "In-context score, nats", "loss": "Loss of held-out text, nats"}
COPIES = {"first_copy": "first", "second_copy": "second"}
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
    """Returns one row per log entry: who, tokens, loss, in-context score and the loss of both copies."""
    names = ["tokens", *NATS, *COPIES]
    return pd.DataFrame([{"who": who, **{name: line[name] for name in names}} for line in log], columns=["who", *names])


def pictures(recipe: Recipe, log: Log, control: Log = ()) -> dict[str, charts.Picture]:
    """Returns the charts by title: of the run in color, of its control in gray."""
    heads = pd.concat([head_rows(log, RUN), head_rows(control, CONTROL)])
    rows = pd.concat([rows_of(log, RUN), rows_of(control, CONTROL)])
    copies = rows.melt(["who", "tokens"], list(COPIES), "copy", "nats").replace({"copy": COPIES})
    warm_up, law = recipe.warm_up * recipe.step_tokens, law_tokens(recipe.step_tokens)
    marks = [{"tokens": warm_up, "what": "Warm-up ends"},
             {"tokens": law, "what": "Phase change by the law 10^5.7 √(batch × context)"}]  # fmt: skip
    shown = pd.DataFrame([each for each in marks if each["tokens"] <= recipe.tokens], columns=["tokens", "what"])
    end = axis_end(recipe.n_steps * recipe.step_tokens)
    found = {title: charts.picture(_heads_template(score, title, end, recipe.n_layers), heads=heads, marks=shown)
             for score, title in HEADS.items()}  # fmt: skip
    title = "Random tokens twice over, nats a token"
    found[title] = charts.picture(_copies_template(title, end), copies=copies, marks=shown)
    for name, title in NATS.items():
        found[title] = charts.picture(_curve_template(name, title, end), rows=rows, marks=shown)
    return found


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
    own = base.transform_filter(alt.datum.who == RUN).mark_line(strokeWidth=1.6)
    return _template(title, _marks(end), _grey(base, tooltip), own.encode(color=colour, tooltip=tooltip))


@charts.kept
def _copies_template(title: str, end: float) -> charts.Template:
    base = charts.named_chart("copies").encode(x=TokenAxis(0.0, end).x(), y=_y("nats"))
    legend = alt.Legend(orient="top-right", title="Copy", direction="horizontal", symbolType="stroke", padding=0,
                        titleOrient="left", offset=0)  # fmt: skip
    colour = alt.Color("copy:N", scale=alt.Scale(domain=list(COPIES.values()), range=[GREY, MARK]), legend=legend)
    tooltip = charts.tips("copy:N|Copy; tokens:Q|Tokens|,.0f; nats:Q|Nats a token|.2f")
    own = base.transform_filter(alt.datum.who == RUN).mark_line(strokeWidth=2)
    control = base.transform_filter(alt.datum.copy == COPIES["second_copy"])
    return _template(title, _marks(end), _grey(control, tooltip), own.encode(color=colour, tooltip=tooltip))


@charts.kept
def _curve_template(name: str, title: str, end: float) -> charts.Template:
    base = charts.named_chart("rows").encode(x=TokenAxis(0.0, end).x(), y=_y(name))
    tooltip = charts.tips(f"tokens:Q|Tokens|,.0f; {name}:Q|{title}|.3f")
    own = base.transform_filter(alt.datum.who == RUN).mark_line(strokeWidth=2)
    return _template(title, _marks(end), _grey(base, tooltip), own.encode(tooltip=tooltip))


def _grey(base: alt.Chart, tooltip: Any) -> alt.Chart:
    control = base.transform_filter(alt.datum.who == CONTROL)
    return control.mark_line(strokeWidth=1.2, color=GREY, strokeDash=[4, 3]).encode(tooltip=tooltip)


def _marks(end: float) -> alt.Chart:
    rule = charts.named_chart("marks").mark_rule(color=GREY, strokeDash=[2, 3], strokeWidth=1)
    return rule.encode(x=TokenAxis(0.0, end).x(), tooltip=charts.tips("what:N|Mark; tokens:Q|Tokens|,.0f"))


def _y(name: str) -> alt.Y:
    return alt.Y(f"{name}:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4))


def _template(title: str, *layers: Any) -> charts.Template:
    head = {"text": title, "anchor": "start", "fontSize": 13, "offset": 6}
    return {**charts.template(HEIGHT + charts.AXIS_PX, *layers), "title": head}
