"""The effect of single heads on a task: its accuracy with each of the strongest induction heads ablated alone."""

import time
from collections.abc import Generator, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import Answers, accuracy, evaluation
from engine.composed import ComposedRun, composed
from engine.measurement import Measurement
from engine.models.masks import Mask, parse_mask
from engine.models.session import Session, Target
from engine.progress import Progress
from engine.questions.requests import Questions, TaskSpec, get_requests, select
from engine.statistics import paired
from pages.ui.controls.sidebar import Setup
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.page.defaults import SAMPLE
from pages.ui.page.tables import number, p_value, percent
from pages.ui.page.work import Work, live

N_HEADS = 8  # the strongest by prefix matching, in addition to the selected ones
N_QUESTIONS = 100
HELP = f"Accuracy with that one head ablated (z = 0), on the same {N_QUESTIONS} questions. p is McNemar's exact test."


def rows_of(full: Answers, ablated: dict[str, Answers]) -> pd.DataFrame:
    """Returns one row per head: accuracy without it, the change, and the questions gained and lost."""
    rows = []
    for name, answers in ablated.items():
        change = paired(full.correct, answers.correct)
        row = {"head": name, "acc": accuracy(answers).acc, "change": (change.gained - change.lost) / change.n}
        rows.append(row | {"gained": change.gained, "lost": change.lost, "p": change.p_mcnemar})
    return pd.DataFrame(rows, columns=["head", "acc", "change", "gained", "lost", "p"])


def questions_of(setup: Setup, task: TaskSpec, session: Session) -> Questions:
    """Returns the questions that are asked, with and without heads."""
    return select(get_requests(task, setup.data_dir, session.store), N_QUESTIONS, SAMPLE)


def effects(setup: Setup, target: Target, task: TaskSpec, names: Sequence[str]) -> Measurement[pd.DataFrame]:
    """Returns the measurement of the table of `rows_of`, of the heads whose answers are known."""
    masks = {"": Mask.full(target.shape)} | {name: parse_mask(name, target.shape) for name in names}

    def body(run: ComposedRun) -> Generator[Progress[Any], None, pd.DataFrame | None]:
        questions = questions_of(setup, task, run.session)
        answers: dict[str, Answers] = {}
        run.total = len(masks) * questions.n
        for name, mask in masks.items():
            found = yield from run.part(evaluation(target, questions, mask), questions.n, f"without {name}")
            answers |= {} if found is None else {name: found}
        full = answers.pop("", None)
        return None if full is None else rows_of(full, answers)

    return composed(target, ("effects", task, setup.data_dir, *names), body)


def draw(setup: Setup, target: Target, task: TaskSpec, frame: pd.DataFrame, sheet: Sheet) -> None:
    """Draws the section."""
    since_s = time.monotonic()
    st.caption("The strongest heads by prefix matching and the selected ones, each ablated alone.", help=HELP)
    strongest = frame.nlargest(N_HEADS, "prefix_matching")["name"].tolist()
    names = tuple(dict.fromkeys([*strongest, *frame.loc[frame["selected"], "name"]]))
    work = Work("effects", "Single heads", effects(setup, target, task, names), priority=2)
    table = max(work.stored(), key=len, default=pd.DataFrame())
    if len(table) < len(names):
        about = "The strongest by prefix matching and the selected ones, in the background."
        label = f"Ablate {len(names)} heads, one at a time"
        work.offer(label, "science", about)
    live(work.watched(), work.line, since_s)
    if table.empty:
        return
    scores = frame.set_index("name")[["prefix_matching", "copying", "copying_share"]]
    table = table.join(scores, on="head").sort_values("change", ignore_index=True)
    titles = {
        "head": "Head",
        "acc": "Accuracy without it",
        "change": "Points",
        "gained": "Gained",
        "lost": "Lost",
        "p": "p",
        "prefix_matching": "Prefix matching",
        "copying_share": "Copying",
    }
    words = {"acc": percent, "change": lambda change: number(100 * change, 1, sign=True), "copying_share": percent}
    words |= {"p": p_value, "prefix_matching": number}
    height = min(360, 40 + 35 * len(table))
    draw_table(table, titles, "Accuracy without single heads", formats=words, height=height)
    sheet.tables["Single heads"] = table
