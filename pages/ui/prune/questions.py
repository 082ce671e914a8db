"""The questions themselves: all of them as a list, any of them as the model reads it.

Everything is read from measurements; nothing is computed.
"""

from typing import Any

import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import Answers
from engine.accuracy.harness_logs import harness_answers
from engine.errors import HeadroomError
from engine.questions.rendering import Question
from engine.views.questions import Second, choices, prompt_of, question_frame, with_harness
from pages.ui.controls.controls import one_of
from pages.ui.controls.study import study
from pages.ui.controls.texts import open_text
from pages.ui.figures.drawing import draw_table
from pages.ui.page.address import MOST, number_field
from pages.ui.page.runtime import show_error
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import number, plain
from pages.ui.page.widget_writes import hold, write
from pages.ui.prune.experiment import AnswersSoFar, Experiment

SHOWN = {"all": "All", "lost": "Lost", "gained": "Gained"}
BETWEEN = {"first": "Only the first", "second": "Only the second"}  # of two models
OTHERWISE = {"harness": "Not as lm-eval"}
TEXT_HELP = "Opens the Text screen at this question and its answer: what the pruned model loses, word by word."
SHOWN_HELP = (
    "Lost: the full model was right and the pruned one is wrong. Gained: the other way round. Of two models that are "
    "compared, those that only one of them answers. Not as lm-eval: the full model's answer is another than in its log."
)
SAMPLES_HELP = (
    "Shows the answers that lm-evaluation-harness 0.4 logged with `--log_samples` next to the full model's: a file "
    "such as `samples_TASK_DATE.jsonl`, or its folder. Questions are matched by their prompts and choices."
)
OPEN_HELP = "Its number in the list; or click a row. The prompt is shown with its examples."
MARGIN_HELP = "Log-likelihood of the right answer less that of the best wrong one, in nats: above 0 is right."
KEY, OPENED, SAMPLES = "prune_show", "prune_question", "prune_samples"


def draw_questions(x: Experiment, answers: AnswersSoFar, second: Second | None = None) -> None:
    """Draws the list, and the opened question; with a `second` model also its answers."""
    frame = question_frame(answers.full, answers.pruned, second)
    if frame.empty:
        st.caption("No question is answered yet.")
        return
    filter_at, open_at = st.columns([10, 2], vertical_alignment="bottom")
    assert answers.full is not None
    frame = _draw_harness(frame, x.task.name, answers.full.first(len(frame)), st.container())
    options = SHOWN | (BETWEEN if study().second else {}) | (OTHERWISE if "harness" in frame else {})
    wanted = one_of(filter_at, "Show", options, KEY, SHOWN_HELP)
    column = "between" if wanted in BETWEEN else "change"
    if wanted in OTHERWISE:
        listed = frame[~frame["as_harness"]]
    else:
        listed = frame if wanted == "all" else frame[frame[column] == wanted] if column in frame else frame[:0]
    kwargs: dict[str, Any] = {"help": OPEN_HELP, "value": None, "placeholder": "none"}
    hold(OPENED)
    opened = number_field(open_at, "Open question", (1, MOST), OPENED, **kwargs)
    st.caption(f"{len(frame)} questions, {(frame['change'] == 'lost').sum()} lost, "
               f"{(frame['change'] == 'gained').sum()} gained.")  # fmt: skip
    _list(listed, second)
    if opened is not None and opened <= len(frame):
        _draw_one(x, answers, int(opened) - 1)
    elif opened is not None:
        st.caption(f"There are {len(frame)} questions; {opened} is not one of them.")


def _draw_harness(frame: pd.DataFrame, task: str, full: Answers, where: DeltaGenerator) -> pd.DataFrame:
    """Draws the field for a log of lm-eval, and how its answers agree; returns the frame with its answers."""
    kwargs: dict[str, Any] = {"placeholder": "folder of lm_eval --log_samples", "help": SAMPLES_HELP}
    path = (where.text_input("Log of lm-eval", key=SAMPLES, bind="query-params", **kwargs) or "").strip()
    if not path:
        return frame
    try:
        found = harness_answers(path, task, full)
    except HeadroomError as error:
        with where:
            show_error(str(error))
        return frame
    n, n_same = len(found.rows), int(found.is_same(full).sum())
    apart = number(found.largest_difference_nats(full))
    where.caption(f"lm-eval: {n_same} of {n} answers are the full model's; at most {apart} nats apart.")
    if found.n_other:
        where.caption(f"{found.n_other} questions are not in its log with the same prompt.")
    return with_harness(frame, full, found)


def _list(shown: pd.DataFrame, second: Second | None) -> None:
    """Draws the table; a clicked row is opened."""
    numbers = tuple(shown["number"])
    key = f"prune questions {hash(numbers)}"

    def opened() -> None:
        rows = st.session_state[key]["selection"]["rows"]
        write(OPENED, int(numbers[rows[0]]) if rows else None)

    text, nats = st.column_config.TextColumn, st.column_config.NumberColumn
    columns = {
        "number": nats("No.", width=45, help="In the order in which they are asked."),
        "question": text("Question", width=210, help="Without the examples in the prompt; its end, if long."),
        "choices": text("Choices", width=150),
        "gold": text("Right", width=65),
        "full": text("Full model", width=80),
        "full_margin": nats("Margin, nats", width=80, help=MARGIN_HELP),
        "pruned": text("Pruned model", width=95),
        "pruned_margin": nats("Margin, nats", width=80, help=MARGIN_HELP),
    }
    if second is not None and "second" in shown:
        columns["second"] = text(second[0], width=95, help="The second model, under the same levels.")
        columns["second_margin"] = nats("Margin, nats", width=80, help=MARGIN_HELP)
    if "harness" in shown:
        columns["harness"] = text("lm-eval", width=80, help="What lm-eval logged.")
    words = "Questions with their choices, the answers of the full and of the pruned model, and their margins"
    formats = {name: number for name in columns if name.endswith("margin")}
    selects = {"key": key, "selection_mode": "single-row", "on_select": opened}
    height = min(390, 38 + 35 * max(1, len(shown)))
    draw_table(shown, columns, words, formats=formats, height=height, **selects)


def _draw_one(x: Experiment, measured: AnswersSoFar, at: int) -> None:
    """Draws one question as the model reads it, and every choice with its log-likelihoods."""
    full, pruned = measured.full, measured.pruned or measured.full
    assert full is not None and pruned is not None
    question = full.questions[at]
    gold = question.golds[0]
    st.markdown(f"**Question {at + 1}**, as the model reads it" + _describe_prefix(x, full, at))
    st.code(question.contexts[gold], language=None, wrap_lines=True, height=min(420, 45 + 20 * _n_lines(question)))
    rows = ["| Choice | | Full model, nats | Pruned model, nats |", "|:--|:--|--:|--:|"]
    for choice, name in enumerate(choices(question)):
        scores = [number(float(answers.log_likelihood_nats[at, choice])) for answers in (full, pruned)]
        marked = [f"**{score}**" if answers.predicted[at] == choice else score
                  for score, answers in zip(scores, (full, pruned), strict=True)]  # fmt: skip
        rows.append(f"| {plain(name)} | {'right' if choice in question.golds else ''} | {' | '.join(marked)} |")
    st.markdown("\n".join(rows), help="Log-likelihoods; each model's answer is bold.")
    if st.button("Read it in Text", key="question in text", icon=":material/notes:", type="tertiary", help=TEXT_HELP):
        open_text(f"A question of {x.task.title}", prompt_of(question) + question.continuations[gold].rstrip())


def _describe_prefix(x: Experiment, full: Answers, at: int) -> str:
    """Returns what precedes the text, or is missing there."""
    cut = int(full.n_cut[at])
    words = ", after a beginning-of-sequence token" if x.target.bos else ""
    return words + (f"; its first {cut:,} tokens do not fit the window and are left out" if cut else "") + ":"


def _n_lines(question: Question) -> int:
    return sum(1 + len(line) // 110 for line in question.contexts[question.golds[0]].splitlines())
