"""A task's function vector added to the prompt: what the model says next, by the layer that gets the vector."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pandas as pd
import streamlit as st

from engine.heads.vector_prompt import VectorGuesses, guesses_with_vector
from engine.heads.vector_switch import switched_on
from engine.models.session import Target
from engine.questions.word_pairs import PairTask, included_tasks
from engine.requests import SwitchTaskOn
from pages.ui.controls.controls import folded, one_listed
from pages.ui.downloads.origin import Origin, of_model
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import errors_shown, session
from pages.ui.page.tables import number, probability, visible
from pages.ui.page.widget_writes import write
from pages.ui.page.work import Work, live

TITLE = "Switch a task on: add its function vector to this prompt"
NAME, OPEN, TASK, ASKED = "Function vector", "continue_vector", "continue_vector_task", "continue vector pair"
TASK_HELP = "Word pairs, such as singular and plural, whose examples make the vector."
HELP = (
    "The vector sums what the top function-vector heads output on average after solved examples of the task (Todd et "
    "al.). It is added to the input of one layer at the last token of the prompt, which has no examples."
)
PAIR_HELP = "Sets the prompt to a test question of the task, without examples. Each click takes the next one."
MEASURE_HELP = "Scores of all heads, then a pass over the prompt. In the background. Finished work is kept."
TITLES = {"layer": "Vector added at", "token": "Next token", "said": "Probability", "others": "Then"}
WITHOUT = "nowhere"


def draw(origin: Origin, target: Target, prompt: str, sheet: Sheet, since_s: float) -> Origin:
    """Draws the section; returns the origin of the screen, with its own once it is opened."""
    open_section = partial(_draw_open, origin, target, prompt, sheet, since_s)
    return folded(TITLE, OPEN, open_section, icon=":material/toggle_on:", in_address=True, holds=[TASK]) or origin


def _draw_open(origin: Origin, target: Target, prompt: str, sheet: Sheet, since_s: float) -> Origin:
    tasks = {task.name: task for task in included_tasks(target.identity.folder)}
    task_at, pair_at = st.columns([5, 8], vertical_alignment="bottom")
    task = tasks[one_listed(task_at, "Word pairs", [*tasks], TASK, help=TASK_HELP)]
    if not presenting():
        pair_at.button(
            "Ask a test pair", icon=":material/quiz:", help=PAIR_HELP, on_click=_ask, args=(tasks, task.name)
        )
    with errors_shown():
        wanted = guesses_with_vector(target, task, prompt)
        work: Work[VectorGuesses] = Work("continue vector", NAME, wanted, priority=2)
        stored = work.stored()
        if not stored and target.spec.is_demo:  # whose scores of heads are shipped
            work.start_ahead(by_size=True)
        live(work.watched(), partial(work.ask, bool(stored), "Add the vector", "toggle_on", MEASURE_HELP), since_s)
        if stored:
            switch = switched_on(target, task).stored(session())
            best = target.shape.n_layers // 3 if switch is None else switch.best_layer
            _draw_found(stored[-1], best, switch is not None, sheet)
    asked = SwitchTaskOn(**of_model(target), task=task.name, prompt=prompt, out="vector.csv")
    measured = {**origin.measurements, **({NAME: wanted} if stored else {})}
    return replace(origin, requests=[*origin.requests, asked], measurements=measured)


def _ask(tasks: Mapping[str, PairTask], name: str) -> None:
    number = st.session_state.get(ASKED, -1) + 1
    st.session_state[ASKED] = number
    task = tasks[name]
    write("continue_prompt", task.asked(task.test[number % len(task.test)]).contexts[0])


def _draw_found(found: VectorGuesses, best: int, is_measured: bool, sheet: Sheet) -> None:
    rows, words = rows_of(found), in_words(found, best, is_measured)
    sheet.tables[NAME] = rows
    sheet.says.append(words)
    st.markdown(words, help=HELP)
    draw_table(rows[[*TITLES]], TITLES, "The likeliest next tokens, by the layer whose input gets the vector")


def rows_of(found: VectorGuesses) -> pd.DataFrame:
    """Returns one row without the vector, then one per layer that gets it: the likeliest token, its probability `p`,
    that as text, and the next likeliest."""
    rows = []
    for at, (ids, p) in enumerate(zip(found.token_ids, found.p, strict=True)):
        first, *others = (visible(found.strings[int(token)]) for token in ids)
        rows.append({"layer": WITHOUT if at == 0 else f"layer {at - 1}", "token": first, "p": float(p[0]),
                     "said": probability(float(p[0])), "others": " · ".join(others)})  # fmt: skip
    return pd.DataFrame(rows)


def in_words(found: VectorGuesses, best: int, is_measured: bool) -> str:
    """Returns the next token without the vector and with it at a layer, and why that layer."""
    (before, p), (after, p_after) = found.likeliest(0), found.likeliest(best + 1)
    before, after = (token.strip() or visible(token) for token in (before, after))
    why = "the best on train pairs" if is_measured else "a third of the depth"
    said = f"Without the vector, “{before}” is likeliest ({probability(p)}); with it at layer {best} ({why}), "
    if found.token_ids[0, 0] != found.token_ids[best + 1, 0]:
        return f"{said}**“{after}” ({probability(p_after)})**."
    change = number(100 * (p_after - p), 1, sign=True)
    return f"{said}it stays ({change} points)."
