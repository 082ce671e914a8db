"""A task's function vector added to the prompt: what the model says next, by the layer that gets the vector, and the
text that it generates with the vector at one layer."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pandas as pd
import streamlit as st

from engine.heads.vector_prompt import VectorGuesses, guesses_with_vector
from engine.heads.vector_switch import added_vector, switched_on
from engine.measurement import Measurement
from engine.models.added_vector import AddedVector
from engine.models.masks import Mask
from engine.questions.word_pairs import PairTask, included_tasks
from engine.requests import SwitchTaskOn
from engine.texts.continuation import Continuation, continuation
from pages.ui.continuation import sections
from pages.ui.continuation.setting import ContinuationControls, request
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
NAME, TEXT = "Function vector", "Text with the vector"
OPEN, TASK, ASKED = "continue_vector", "continue_vector_task", "continue vector pair"
LAYER, BEST = "continue_vector_layer", "best"
TASK_HELP = "Word pairs, such as singular and plural, whose examples make the vector."
HELP = (
    "The vector sums what the top function-vector heads output on average after solved examples of the task (Todd et "
    "al.). It is added to the input of one layer at the last token of the prompt, which has no examples."
)
LAYER_HELP = (
    "The layer whose input gets the vector. Best: on train pairs if Mechanisms has measured that, else a third of the "
    "depth."
)
PAIR_HELP = "Sets the prompt to a test question of the task, without examples. Each click takes the next one."
MEASURE_HELP = "Scores of all heads, then a pass over the prompt. In the background. Finished work is kept."
TITLES = {"layer": "Vector added at", "token": "Next token", "said": "Probability", "others": "Then"}
WITHOUT = "nowhere"


def draw(origin: Origin, x: ContinuationControls, full: Continuation | None, sheet: Sheet, since_s: float) -> Origin:
    """Draws the section; returns the origin of the screen, with its own once it is opened. `full`: what the full model
    says without the vector."""
    open_section = partial(_draw_open, origin, x, full, sheet, since_s)
    return (
        folded(TITLE, OPEN, open_section, icon=":material/toggle_on:", in_address=True, holds=[TASK, LAYER]) or origin
    )


def _draw_open(
    origin: Origin, x: ContinuationControls, full: Continuation | None, sheet: Sheet, since_s: float
) -> Origin:
    target, prompt, n_layers = x.target, x.prompt, x.target.shape.n_layers
    tasks = {task.name: task for task in included_tasks(target.identity.folder)}
    task_at, layer_at, pair_at = st.columns([5, 3, 5], vertical_alignment="bottom")
    task = tasks[one_listed(task_at, "Word pairs", [*tasks], TASK, help=TASK_HELP)]
    chosen = one_listed(layer_at, "Layer", [BEST, *map(str, range(n_layers))], LAYER, help=LAYER_HELP)
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
            best = n_layers // 3 if switch is None else switch.best_layer
            layer = best if chosen == BEST else int(chosen)
            why = "a third of the depth" if switch is None else "the best on train pairs"
            words = in_words(stored[-1], layer, why if chosen == BEST else "chosen")
            sheet.says.append(words)
            st.markdown(words, help=HELP)
            origin = _draw_text(origin, x, full, added_vector(target, task, layer), f"{task.name}@{layer}", since_s)
            rows = sheet.tables[NAME] = rows_of(stored[-1])
            draw_table(rows[[*TITLES]], TITLES, "The likeliest next tokens, by the layer whose input gets the vector")
    asked = SwitchTaskOn(**of_model(target), task=task.name, prompt=prompt, out="vector.csv")
    measured = {**origin.measurements, **({NAME: wanted} if stored else {})}
    return replace(origin, requests=[*origin.requests, asked], measurements=measured)


def _ask(tasks: Mapping[str, PairTask], name: str) -> None:
    number = st.session_state.get(ASKED, -1) + 1
    st.session_state[ASKED] = number
    task = tasks[name]
    write("continue_prompt", task.asked(task.test[number % len(task.test)]).contexts[0])


def _draw_text(
    origin: Origin, x: ContinuationControls, full: Continuation | None, vector: Measurement[AddedVector], name: str,
    since_s: float,
) -> Origin:  # fmt: skip
    """Draws the text that the full model generates with the vector, next to that without; returns the origin with its
    request."""
    added = vector.stored(session())
    if added is None:
        return origin
    mask = Mask.full(x.target.shape)
    wanted = continuation(*x.read, mask, x.how, x.chat is not None, added)
    work: Work[Continuation] = Work("continue vector text", TEXT, wanted, 1, while_seen=True)
    work.value()

    def draw_both() -> None:
        work.line()
        parts = sections.first_difference(full, work.found)
        sides = {"Full model, without the vector": full, f"Full model, with {name}": work.found}
        for at, (who, each) in zip(st.columns(2, gap="medium"), sides.items(), strict=True):
            with at:
                st.caption(who)
                sections.draw_said(who, each, x.prompt, parts)

    live([work.slot], draw_both, since_s)
    asked = replace(request(x, mask), add_vector=name)
    return replace(origin, requests=[*origin.requests, asked], measurements={**origin.measurements, TEXT: wanted})


def rows_of(found: VectorGuesses) -> pd.DataFrame:
    """Returns one row without the vector, then one per layer that gets it: the likeliest token, its probability `p`,
    that as text, and the next likeliest."""
    rows = []
    for at, (ids, p) in enumerate(zip(found.token_ids, found.p, strict=True)):
        first, *others = (visible(found.strings[int(token)]) for token in ids)
        rows.append({"layer": WITHOUT if at == 0 else f"layer {at - 1}", "token": first, "p": float(p[0]),
                     "said": probability(float(p[0])), "others": " · ".join(others)})  # fmt: skip
    return pd.DataFrame(rows)


def in_words(found: VectorGuesses, layer: int, why: str) -> str:
    """Returns the next token without the vector and with it at a layer, and why that layer."""
    (before, p), (after, p_after) = found.likeliest(0), found.likeliest(layer + 1)
    before, after = (token.strip() or visible(token) for token in (before, after))
    said = f"Without the vector, “{before}” is likeliest ({probability(p)}); with it at layer {layer} ({why}), "
    if found.token_ids[0, 0] != found.token_ids[layer + 1, 0]:
        return f"{said}**“{after}” ({probability(p_after)})**."
    change = number(100 * (p_after - p), 1, sign=True)
    return f"{said}it stays ({change} points)."
