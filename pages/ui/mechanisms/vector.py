"""A task switched on: accuracy without examples, with the task's function vector added at each layer."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from engine.heads.vector_switch import TEST, VectorSwitch, switched_on
from engine.measurement import Measurement
from engine.models.session import Target
from engine.questions.word_pairs import N_SHOTS, included_tasks
from engine.shapes import ModelShape
from engine.views.colors import GREY, MARK
from pages.ui.controls.controls import one_listed
from pages.ui.figures import charts
from pages.ui.figures.sheet import Sheet
from pages.ui.page.tables import number, percent, whole_percent
from pages.ui.page.work import Work, live

NAME = "Function vector"
TITLE = "Switch a task on :small[add its function vector, without any example]"
HELP = (
    "The vector sums what the top function-vector heads output on average after solved examples (Todd et al.). It is "
    "added to the input of one layer at the last token of a question without examples. Right: the first token of the "
    "answer is the likeliest of all. The best layer (orange) is chosen on train pairs; the chart shows test pairs."
)
TASK_HELP = "Word pairs, such as singular and plural."
MEASURE_HELP = "Scores of all heads, then every pair with examples, without, and with the vector. In the background."
TRY_HELP = "Opens Continue with this vector, which is added to any prompt and to the text that follows."
HEIGHT_PX = 260


def draw(target: Target, sheet: Sheet, since_s: float) -> dict[str, Measurement[Any]]:
    """Draws the section, or the button that measures it; returns the measurement by its name, if it is shown."""
    st.subheader(TITLE, help=HELP)
    tasks = {task.name: task for task in included_tasks(target.identity.folder)}
    name = one_listed(st.container(width=360), "Word pairs", [*tasks], "mechanisms_vector", help=TASK_HELP)
    wanted = switched_on(target, tasks[name])
    work: Work[VectorSwitch] = Work("mechanisms vector", NAME, wanted, priority=3)
    stored = work.stored()

    def draw_progress() -> None:
        if work.is_first_read:
            work.reading_line()
        elif not work.line() and not stored:
            if work.found is not None:
                st.rerun()  # it has just been measured
            work.offer(f"Add the vector of {name}", "toggle_on", MEASURE_HELP, by_size=True, least_s=0.0)

    live(work.watched(), draw_progress, since_s)
    if stored:
        _draw(name, stored[-1], target.shape, sheet)
    return {NAME: wanted} if stored else {}


def _draw(name: str, found: VectorSwitch, shape: ModelShape, sheet: Sheet) -> None:
    words, rows = in_words(name, found), rows_of(found)
    sheet.says.append(words)
    sheet.tables[NAME] = rows
    st.markdown(words)
    picture = _chart(rows, found)
    sheet.draw(NAME, picture, "mechanisms_vector_chart", words)
    heads = ", ".join(shape.head_names[layer * shape.n_heads + head] for layer, head in found.heads)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"Heads of the vector: {heads}.", width="content")
        if st.button("Try it on a prompt of your own", icon=":material/edit_note:", help=TRY_HELP):
            st.switch_page("pages/continuation.py", query_params={"continue_vector_task": name})


def rows_of(found: VectorSwitch) -> pd.DataFrame:
    """Returns one row per layer: the share of test pairs that are right with the vector added there, and whether it is
    the best on train pairs."""
    right = found.switched[TEST]
    layers = np.arange(len(right))
    return pd.DataFrame({"layer": layers, "acc": right.mean(1), "is_best": layers == found.best_layer})


def in_words(name: str, found: VectorSwitch) -> str:
    """Returns by how much the vector lifts accuracy at the best layer, and what examples reach."""
    zero, few = (float(right[TEST].mean()) for right in (found.zero, found.few))
    at_best, lift = float(found.switched[TEST][found.best_layer].mean()), found.lift
    low, high = (number(100 * end, 0, sign=True) for end in lift.interval)
    words = f"The likeliest next token is right for {whole_percent(zero)} of {lift.n} test pairs of {name} without "
    words += f"examples, for **{whole_percent(at_best)}** with the vector at layer {found.best_layer} "
    words += (
        f"(95% interval of the change {low} to {high} points), and for {whole_percent(few)} with {N_SHOTS} examples."
    )
    return words if lift.is_significant else f"{words} **No vector of these heads clearly does the task.**"


def _chart(rows: pd.DataFrame, found: VectorSwitch) -> charts.Picture:
    lines = pd.DataFrame(
        {"acc": [float(found.zero[TEST].mean()), float(found.few[TEST].mean())],
         "words": ["no examples", f"{N_SHOTS} examples"]}
    )  # fmt: skip
    lines = lines.assign(share=[percent(acc) for acc in lines["acc"]])
    return charts.picture(_template(len(rows)), cells=rows, lines=lines)


@charts.kept
def _template(n_layers: int) -> charts.Template:
    scale = alt.Scale(domain=[-0.5, n_layers - 0.5 + n_layers / 8], nice=False)
    x = alt.X(
        "layer:Q",
        title="Layer whose input gets the vector",
        scale=scale,
        axis=alt.Axis(grid=False, values=[*range(n_layers)], labelOverlap=True),
    )
    y = alt.Y(
        "acc:Q", title="Likeliest token right", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".0%", tickCount=5)
    )
    base = charts.named_chart("cells").encode(x=x, y=y, tooltip=charts.tips("layer:Q|Layer; acc:Q|Right|.1%"))
    best = base.transform_filter("datum.is_best").mark_point(size=200, filled=True, color=MARK, opacity=1)
    at = charts.named_chart("lines").encode(y=alt.Y("acc:Q"), tooltip=charts.tips("words:N|With; share:N|Right"))
    rules = at.mark_rule(color=GREY, strokeDash=[5, 4])
    named = charts.written(at, 12, align="right", dy=-8).encode(x=alt.value(alt.ExprRef("width")), text="words:N")
    return charts.template(HEIGHT_PX, rules, named, base.mark_line(point={"size": 60}), best)
