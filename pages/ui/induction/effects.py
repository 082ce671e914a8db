"""What single heads do for a task: its accuracy with each of the strongest induction heads ablated alone."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import Answers, accuracy, evaluate, paired, recall
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import Models
from engine.models.masks import Mask, parse_mask
from engine.questions.requests import TaskSpec, get_requests, select
from pages.ui.prune.experiment import SAMPLE
from pages.ui.prune.tables import to_csv
from pages.ui.shared.runtime import models, store
from pages.ui.shared.sidebar import Setup
from pages.ui.shared.work import known_or_measured, live, unfinished_line, watched

N_HEADS = 8  # the strongest by prefix matching, besides those that are selected
N_QUESTIONS = 100


def rows_of(full: Answers, ablated: dict[str, Answers]) -> pd.DataFrame:
    """One row a head: accuracy without it, the change, and what it gained and lost on the same questions."""
    rows = []
    for name, answers in ablated.items():
        change = paired(full, answers)
        rows.append({"head": name, "acc": accuracy(answers).acc, "change": (change.gained - change.lost) / change.n,
                     "gained": change.gained, "lost": change.lost, "p": change.p_mcnemar})  # fmt: skip
    return pd.DataFrame(rows, columns=["head", "acc", "change", "gained", "lost", "p"])


def measured(
    setup: Setup, model: Identity, task: TaskSpec, names: Sequence[str], compute: bool, holder: Models, results: Any
) -> Iterator[Progress]:
    """Job: a table as `rows_of` gives it; of what is stored alone where `compute` is False."""
    requests = get_requests(task, setup.data_dir, results)
    selection = select(requests, N_QUESTIONS, SAMPLE)
    masks = {"": Mask.full(model.shape)} | {name: parse_mask(name, model.shape) for name in names}
    answers: dict[str, Answers] = {}
    for number, (name, mask) in enumerate(masks.items()):
        value = recall(model, setup.spec, requests, selection, mask, setup.bos, results)
        if compute and len(value) < selection.n:
            for step in evaluate(holder, setup.spec, requests, selection, mask, setup.bos, results):
                value = step.value if step.value is not None else value
                yield Progress(number * selection.n + step.done, len(masks) * selection.n, message=f"without {name}")
        if len(value) == selection.n:
            answers[name] = value
    full = answers.pop("", None)
    yield Progress(1, 1, None if full is None else rows_of(full, answers))


def draw(setup: Setup, model: Identity, task: TaskSpec, frame: pd.DataFrame) -> dict[str, Callable[[], bytes]]:
    """Draws the section; gives its table for the downloads."""
    since_s = time.monotonic()
    st.subheader("What each does for this task", help="Accuracy with that one head ablated (z = 0), on the same "
                 f"{N_QUESTIONS} questions. p is McNemar's exact test.")  # fmt: skip
    strongest = frame.nlargest(N_HEADS, "prefix_matching")["name"].tolist()
    names = tuple(dict.fromkeys([*strongest, *frame.loc[frame["selected"], "name"]]))
    key = f"{setup} {model.digest} {task} {names}"
    run = partial(measured, setup, model, task, names, holder=models(), results=store())
    tables, start = known_or_measured("effects", key, run)
    table = max(tables, key=len) if tables else pd.DataFrame()
    if len(table) < len(names):
        st.button(f"Ablate {len(names)} heads, one at a time", icon=":material/science:", on_click=start,
                  help="The strongest by prefix matching and the selected ones, in the background.")  # fmt: skip
    line = partial(unfinished_line, "effects", key, "Single heads", start)
    live(watched("effects"), line, since_s)
    if table.empty:
        return {}
    shown = frame.set_index("name")[["prefix_matching", "copying"]]
    table = table.join(shown, on="head").sort_values("change")
    percent = partial(st.column_config.NumberColumn, format="percent")
    st.dataframe(table, hide_index=True, height=min(360, 40 + 35 * len(table)), alt="Accuracy without single heads",
                 column_config={
                     "head": "Head", "acc": percent("Accuracy without it"), "change": percent("Change"),
                     "gained": "Gained", "lost": "Lost", "p": st.column_config.NumberColumn("p", format="%.3f"),
                     "prefix_matching": st.column_config.NumberColumn("Prefix matching", format="%.3f"),
                     "copying": st.column_config.NumberColumn("Copying", format="%.3f"),
                 })  # fmt: skip
    return {"Single heads": partial(to_csv, table)}
