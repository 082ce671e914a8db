"""The questions themselves: all of them as a list, any of them as the model reads it.

Everything is read from measurements; nothing is computed.
"""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import Answers
from engine.questions.requests import Question
from pages.ui.controls.controls import one_of
from pages.ui.controls.selection import typed
from pages.ui.figures.drawing import draw_table
from pages.ui.page.address import MOST, number_field
from pages.ui.page.tables import number, plain
from pages.ui.page.widget_writes import hold, write
from pages.ui.prune.experiment import AnswersSoFar, Experiment

SHOWN = {"all": "All", "lost": "Lost", "gained": "Gained"}
BETWEEN = {"first": "Only the first", "second": "Only the second"}  # of two models
SHOWN_HELP = (
    "Lost: the full model was right and the pruned one is wrong. Gained: the other way round. Of two models that are "
    "compared, those that only one of them answers."
)
OPEN_HELP = "Its number in the list; or click a row. The prompt is shown with its examples."
MARGIN_HELP = "Log-likelihood of the right answer less that of the best wrong one, in nats: above 0 is right."
PAGE = 50
LONG = 90  # characters of a question in the list
KEY, OPENED = "prune_show", "prune_question"


def own_words(question: Question) -> str:
    """Returns the question without the examples before it: the harness separates those by an empty line."""
    return question.contexts[question.golds[0]].rstrip().split("\n\n")[-1].strip()


def choices(question: Question) -> list[str]:
    """Returns the answer choices; if the contexts differ and not their ends, the contexts."""
    if len(set(question.continuations)) == 1 and len(set(question.contexts)) > 1:
        return [context.rstrip().split("\n\n")[-1].strip() for context in question.contexts]
    return [text.strip() for text in question.continuations]


def margins(answers: Answers) -> np.ndarray:
    """Returns (n,) log-likelihood of the best right answer less that of the best wrong one, in nats; nan if there is
    none to compare with."""
    found = np.full(len(answers), np.nan)
    for row, question in enumerate(answers.questions):
        scores = answers.log_likelihood_nats[row, : len(question.contexts)]
        wrong = np.delete(scores, list(question.golds))
        if len(wrong):
            found[row] = scores[list(question.golds)].max() - wrong.max()
    return found


Second = tuple[str, Answers | None]  # the second model of a comparison: its name, and its answers under its own mask


def question_frame(measured: AnswersSoFar, second: Second | None = None) -> pd.DataFrame:
    """Returns one row per answered question, in the order in which they are asked; without a pruned model its columns
    are the full model's. With a `second` model also its answer (`second`), its margin, and which of the two is right
    (`between`: same, first or second); as far as it has answered."""
    full, pruned = measured.full, measured.pruned or measured.full
    if full is None or pruned is None:
        return pd.DataFrame()
    n = min(len(full), len(pruned))
    rows = []
    for at, question in enumerate(full.questions[:n]):
        named = choices(question)
        before, after = bool(full.correct[at]), bool(pruned.correct[at])
        change = "same" if before == after else "gained" if after else "lost"
        row = {"number": at + 1, "question": shorten(own_words(question)), "choices": " · ".join(map(shorten, named))}
        row |= {"gold": shorten(named[question.golds[0]]), "change": change}
        for who, answers, right in (("full", full, before), ("pruned", pruned, after)):
            row[who] = _format_answer(question, answers, at, right)
        rows.append(row)
    frame = pd.DataFrame(rows).assign(full_margin=margins(full)[:n], pruned_margin=margins(pruned)[:n])
    return frame if second is None or second[1] is None else _with_second(frame, pruned, second[1])


def _with_second(frame: pd.DataFrame, first: Answers, second: Answers) -> pd.DataFrame:
    said, between = [], []
    for at in range(len(frame)):
        if at >= len(second):
            said.append("")
            between.append("same")
            continue
        right, other = bool(second.correct[at]), bool(first.correct[at])
        said.append(_format_answer(first.questions[at], second, at, right))
        between.append("same" if right == other else "second" if right else "first")
    margin = np.full(len(frame), np.nan)
    margin[: len(second)] = margins(second)[: len(frame)]
    return frame.assign(second=said, second_margin=margin, between=between)


def _format_answer(question: Question, answers: Answers, at: int, right: bool) -> str:
    """Returns the answer, after a mark of whether it is right."""
    named = choices(question)
    said = named[int(answers.predicted[at])] if len(named) > 1 else "the same" if right else "something else"
    return f"{'✓' if right else '✗'} {shorten(said)}"


def draw_questions(x: Experiment, measured: AnswersSoFar, second: Second | None = None) -> None:
    """Draws the list, and the opened question; with a `second` model also its answers."""
    frame = question_frame(measured, second)
    if frame.empty:
        st.caption("No question is answered yet.")
        return
    filter_at, page_at, open_at = st.columns([5, 5, 2], vertical_alignment="bottom")
    both = second is not None and "between" in frame
    wanted = one_of(filter_at, "Show", SHOWN | (BETWEEN if typed() else {}), KEY, SHOWN_HELP)
    column = "between" if wanted in BETWEEN else "change"
    shown = frame if wanted == "all" else frame[frame[column] == wanted] if column in frame else frame[:0]
    n_pages = max(1, -(-len(shown) // PAGE))
    page = 1
    if n_pages > 1:
        with page_at:
            page = st.pagination(n_pages, key=f"prune questions of {n_pages}")
    shown = shown.iloc[(page - 1) * PAGE : page * PAGE]
    about: dict[str, Any] = {"help": OPEN_HELP, "value": None, "placeholder": "none"}
    hold(OPENED)
    opened = number_field(open_at, "Open question", (1, MOST), OPENED, **about)
    st.caption(f"{len(frame)} questions, {(frame['change'] == 'lost').sum()} lost, "
               f"{(frame['change'] == 'gained').sum()} gained.")  # fmt: skip
    if both and second is not None:
        n_first, n_second = ((frame["between"] == which).sum() for which in BETWEEN)
        st.caption(f"{plain(second[0])}: {n_second} that only it answers, {n_first} that only the first model does.")
    _list(shown, second)
    if opened is not None and opened <= len(frame):
        _draw_one(x, measured, int(opened) - 1)
    elif opened is not None:
        st.caption(f"There are {len(frame)} questions; {opened} is not one of them.")


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


def _describe_prefix(x: Experiment, full: Answers, at: int) -> str:
    """Returns what precedes the text, or is missing there."""
    cut = int(full.n_cut[at])
    words = ", after a beginning-of-sequence token" if x.target.bos else ""
    return words + (f"; its first {cut:,} tokens do not fit the window and are left out" if cut else "") + ":"


def _n_lines(question: Question) -> int:
    return sum(1 + len(line) // 110 for line in question.contexts[question.golds[0]].splitlines())


def shorten(text: str) -> str:
    """Returns the text in one line: its last words, if it is long."""
    text = " ".join(text.split())
    return text if len(text) <= LONG else f"…{text[-LONG:].partition(' ')[2] or text[-LONG:]}"
