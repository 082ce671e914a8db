"""What single heads do for a task: its accuracy with each of the strongest induction heads ablated alone."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import Answers, accuracy, evaluation
from engine.models.masks import Mask, parse_mask
from engine.models.rates import seconds_for
from engine.models.subject import Lab, Subject
from engine.progress import Progress, last_value
from engine.questions.amounts import all_characters
from engine.questions.requests import TaskSpec, get_requests, select
from engine.statistics import paired
from pages.ui.shared.defaults import SAMPLE
from pages.ui.shared.runtime import lab
from pages.ui.shared.sidebar import Setup
from pages.ui.shared.tables import number, percent, written
from pages.ui.shared.work import Work, live

N_HEADS = 8  # the strongest by prefix matching, besides those that are selected
N_QUESTIONS = 100
HELP = f"Accuracy with that one head ablated (z = 0), on the same {N_QUESTIONS} questions. p is McNemar's exact test."


def rows_of(full: Answers, ablated: dict[str, Answers]) -> pd.DataFrame:
    """One row a head: accuracy without it, the change, and what it gained and lost on the same questions."""
    rows = []
    for name, answers in ablated.items():
        change = paired(full.correct, answers.correct)
        row = {"head": name, "acc": accuracy(answers).acc, "change": (change.gained - change.lost) / change.n}
        rows.append(row | {"gained": change.gained, "lost": change.lost, "p": change.p_mcnemar})
    return pd.DataFrame(rows, columns=["head", "acc", "change", "gained", "lost", "p"])


def measured(
    setup: Setup, subject: Subject, task: TaskSpec, names: Sequence[str], lab: Lab, compute: bool = True
) -> Iterator[Progress[pd.DataFrame]]:
    """Job: a table as `rows_of` gives it; of what is stored alone where `compute` is False."""
    questions = select(get_requests(task, setup.data_dir, lab.store), N_QUESTIONS, SAMPLE)
    masks = {"": Mask.full(subject.shape)} | {name: parse_mask(name, subject.shape) for name in names}
    answers: dict[str, Answers] = {}
    for place, (name, mask) in enumerate(masks.items()):
        value = evaluation(subject, questions, mask).stored(lab)
        if compute and value is None:
            steps, total = evaluation(subject, questions, mask).run(lab), len(masks) * questions.n
            value = yield from last_value(steps, place * questions.n, total, label=f"without {name}")
        if value is not None:
            answers[name] = value
    full = answers.pop("", None)
    yield Progress(1, 1, None if full is None else rows_of(full, answers))


def takes_s(subject: Subject, setup: Setup, task: TaskSpec, names: Sequence[str]) -> float | None:
    """Seconds that the table takes here, None while that is not known."""
    store = lab().store
    questions = select(get_requests(task, setup.data_dir, store), N_QUESTIONS, SAMPLE)
    return seconds_for(store, subject, "forward", all_characters(questions) * (len(names) + 1))


def draw(setup: Setup, subject: Subject, task: TaskSpec, frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Draws the section; gives its table for the downloads."""
    since_s = time.monotonic()
    st.subheader("What each does for this task", help=HELP)
    strongest = frame.nlargest(N_HEADS, "prefix_matching")["name"].tolist()
    names = tuple(dict.fromkeys([*strongest, *frame.loc[frame["selected"], "name"]]))
    run = partial(measured, setup, subject, task, names, lab())
    bare = Work("effects", f"{setup} {subject} {task} {names}", "Single heads", run, priority=2)
    work = replace(bare, takes=lambda: takes_s(subject, setup, task, names) if bare.is_read else None)
    table = max(work.stored(), key=len, default=pd.DataFrame())
    if len(table) < len(names):
        about = "The strongest by prefix matching and the selected ones, in the background."
        label = f"Ablate {len(names)} heads, one at a time"
        work.offer(label, "science", about)
    live(work.watched(), work.line, since_s)
    if table.empty:
        return {}
    scores = frame.set_index("name")[["prefix_matching", "copying", "copying_share"]]
    table = table.join(scores, on="head").sort_values("change", ignore_index=True)
    titles = {
        "head": "Head",
        "acc": "Accuracy without it",
        "change": "Change, points",
        "gained": "Gained",
        "lost": "Lost",
        "p": "p",
        "prefix_matching": "Prefix matching",
        "copying_share": "Copying",
    }
    words = {"acc": percent, "change": lambda change: number(100 * change, 1, sign=True), "copying_share": percent}
    words |= dict.fromkeys(("p", "prefix_matching"), partial(number, digits=3))
    config = {name: st.column_config.Column(title) for name, title in titles.items()}
    height, about = min(360, 40 + 35 * len(table)), "Accuracy without single heads"
    shown = written(table[list(titles)], **words)
    st.dataframe(shown, hide_index=True, height=height, alt=about, column_config=config)
    return {"Single heads": table}
