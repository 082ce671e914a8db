"""The example question next to the figure: the line of the prompt that decides it, with the copied word marked, and a
link to where an induction head looks.

Where the head looks is measured on the embedded model alone, whose copying tasks are made for it.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from engine.composed import ComposedRun, composed
from engine.heads.attention import head_views, overview
from engine.measurement import Measurement
from engine.models.masks import Mask, parse_heads
from engine.models.session import Target
from engine.progress import Progress
from engine.questions.requests import Question
from engine.studies.removal import found_heads
from engine.texts.passages import text_digest
from engine.views.questions import Copied, decided_by, example_words, prompt_of
from pages.ui.controls.texts import open_text, show_text
from pages.ui.page.tables import whole_percent
from pages.ui.page.work import Work
from pages.ui.prune.experiment import AnswersSoFar, Experiment

SLOT, PRIORITY = "example", 4
LEAST_LOOK = 0.1  # share of its attention from which a head is said to look at a word
LOOK_HELP = "Opens the Text screen at this question, shaded by where this head looks for the answer."


@dataclass(frozen=True)
class Example:
    """One of the questions: its `place` among the answers, and whether pruning loses it."""

    place: int
    question: Question
    is_lost: bool

    @property
    def prompt(self) -> str:
        """Returns the text that the model continues."""
        return prompt_of(self.question)


@dataclass(frozen=True)
class Look:
    """The induction head that looks most at the copied word from the end of the prompt: its name, the share of its
    attention, and the number of the token that it looks from."""

    digest: str  # of the prompt
    head: str
    share: float
    token: int


def look(target: Target, prompt: str, at: Copied) -> Measurement[Look]:
    """Returns the measurement of the Look; no value if no induction head looks there."""
    full = Mask.full(target.shape)

    def body(run: ComposedRun) -> Generator[Progress[Any], None, Look | None]:
        found = yield from run.part(found_heads(target))
        if found is None or not found.heads:
            return None
        heads = [divmod(head, target.shape.n_heads) for head in found.heads]
        views = yield from run.part(head_views(target, prompt, full, heads))
        seen = yield from run.part(overview(target, prompt, full))
        if views is None or seen is None:
            return None
        tokens = [number for number, end in enumerate(seen.ends) if at.word[0] < end <= at.word[1]]
        shares = {head: float(view.pattern[-1, [seen.first_text + number for number in tokens]].sum())
                  for head, view in views.items()}  # fmt: skip
        head = max(shares, key=shares.__getitem__)
        return Look(text_digest(prompt), f"L{head[0]}H{head[1]}", shares[head], len(seen.ends))

    return composed(target, ("look", text_digest(prompt), at), body, 3)


def look_of(x: Experiment, measured: AnswersSoFar) -> Measurement[Look] | None:
    """Returns the measurement of the Look in the example question; None but for a copying task of the embedded
    model."""
    shown = example(x, measured)
    at = decided_by(x.task, shown.question) if x.target.spec.is_demo else None
    return None if at is None else look(x.target, shown.prompt, at)


def look_work(wanted: Measurement[Look]) -> Work[Look]:
    """Returns the work that measures a Look."""
    return Work(SLOT, "Example question", wanted, PRIORITY, while_seen=True)


def example(x: Experiment, measured: AnswersSoFar) -> Example:
    """Returns the first question that pruning loses, or the first one."""
    lost: list[int] = []
    if measured.full is not None and measured.pruned is not None:
        n = min(len(measured.full), len(measured.pruned))
        lost = np.flatnonzero(measured.full.correct[:n] & ~measured.pruned.correct[:n]).tolist()
    place = lost[0] if lost else 0
    [question] = x.questions.at(x.questions.order[place : place + 1])
    return Example(place, question, bool(lost))


def draw_example(x: Experiment, measured: AnswersSoFar, found: Look | None) -> None:
    """Draws the question, and the link to the Text screen."""
    of = example(x, measured)
    st.markdown(example_words(x.task, of.place, of.question, of.is_lost, measured.full, measured.pruned))
    if found is None or found.digest != text_digest(of.prompt) or found.share < LEAST_LOOK:
        return
    label = f"{found.head} looks at that word ({whole_percent(found.share)})"
    [(layer, head)] = parse_heads(found.head, x.shape)
    if measured.mask is not None and not measured.mask.heads[layer][head]:
        label = f"In the full model, {label}"
    if st.button(label, icon=":material/visibility:", type="tertiary", key="example look", help=LOOK_HELP):
        question = of.question  # with its answer, as the head looks from the token before that
        text = of.prompt + question.continuations[question.golds[0]].rstrip()
        show_text(f"A question of {x.task.title}", text)
        open_text(found.head, found.token + 1)
