"""The example question next to the figure: the line of the prompt that decides it, with the copied word marked, and a
link to where an induction head looks.

Where the head looks is measured on the embedded model alone, whose copying tasks are made for it.
"""

import re
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
from engine.questions.tasks import task_info
from engine.studies.removal import found_heads
from engine.texts.passages import text_digest
from pages.ui.controls.texts import open_attention
from pages.ui.page.runtime import in_memory, session
from pages.ui.page.tables import plain, whole_percent
from pages.ui.page.work import Work, under_way
from pages.ui.prune import dragging
from pages.ui.prune.experiment import AnswersSoFar, Experiment
from pages.ui.prune.jobs import MEASURING
from pages.ui.prune.panels.questions import choices, shorten

SLOT, PRIORITY = "example", 4
COPYING = ("examples", "copying")  # needs of tasks whose answer is copied from the prompt (TaskInfo.needs)
TAIL = 110  # characters of the prompt
LEAST_LOOK = 0.1  # share of its attention from which a head is said to look at a word
LOOK_HELP = "Opens the Attention screen at this question, this head, and the token that it looks from."
PART = re.compile(r"[^\n]+")  # a line of the prompt
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Copied:
    """The occurrence of the right answer that decides a question: character offsets in the prompt of the `word` and of
    its `line`."""

    word: tuple[int, int]
    line: tuple[int, int]


@dataclass(frozen=True)
class Example:
    """One of the questions: its `place` among the answers, and whether pruning loses it."""

    place: int
    question: Question
    is_lost: bool

    @property
    def prompt(self) -> str:
        """Returns the text that the model continues."""
        return _prompt(self.question)


@dataclass(frozen=True)
class Look:
    """The induction head that looks most at the copied word from the end of the prompt: its name, the share of its
    attention, and the number of the token that it looks from."""

    digest: str  # of the prompt
    head: str
    share: float
    token: int


def copied(question: Question) -> Copied | None:
    """Returns the occurrence of the right answer in the line that has most words in common with the question itself,
    the last of equals; None if the prompt does not contain it."""
    prompt, answer = _prompt(question), question.continuations[question.golds[0]].strip()
    if not answer:
        return None
    lines = [part.span() for part in PART.finditer(prompt)]
    own = {*WORD.findall(prompt[slice(*lines[-1])])} if lines else set()
    found = []
    for line in lines:
        for match in re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", prompt[slice(*line)]):
            word = line[0] + match.start(), line[0] + match.end()
            found.append((len(own & {*WORD.findall(prompt[slice(*line)])}), Copied(word, line)))
    return max(found, key=lambda each: (each[0], each[1].word))[1] if found else None


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


def look_ahead(x: Experiment, measured: AnswersSoFar) -> Look | None:
    """Returns where an induction head looks in the example question, for a copying task of the embedded model; measured
    once nothing else is."""
    shown = example(x, measured)
    at = decided_by(x, shown.question) if x.target.spec.is_demo else None
    if at is None:
        return None
    wanted = look(x.target, shown.prompt, at)
    found = wanted.stored(session())
    is_idle = not dragging.moving() and not under_way([*MEASURING, "estimates", "perplexity"])
    if found is None and is_idle and x.is_complete(measured) and in_memory(x.target.spec):
        Work(SLOT, "Example question", wanted, PRIORITY, while_seen=True).start_ahead()
    return found if found is not None and found.share >= LEAST_LOOK else None


def example(x: Experiment, measured: AnswersSoFar) -> Example:
    """Returns the first question that pruning loses, or the first one."""
    lost: list[int] = []
    if measured.full is not None and measured.pruned is not None:
        n = min(len(measured.full), len(measured.pruned))
        lost = np.flatnonzero(measured.full.correct[:n] & ~measured.pruned.correct[:n]).tolist()
    place = lost[0] if lost else 0
    [question] = x.questions.at(x.questions.order[place : place + 1])
    return Example(place, question, bool(lost))


def example_in_words(x: Experiment, measured: AnswersSoFar, of: Example) -> str:
    """Returns the question with its choices, the right one bold, both models' answers, and the line that decides it;
    Markdown."""
    place, question, prompt = of.place, of.question, of.prompt
    at = decided_by(x, question)
    own = prompt.rfind("\n") + 1
    is_within = at is not None and at.line[0] == own  # the question itself has the word
    begins = own if is_within else question_start(prompt)
    asked = "…" if begins and prompt[begins - 1] != "\n" else ""
    asked += _marked(prompt, begins, len(prompt), at if is_within else None)
    named = [plain(shorten(choice)) for choice in choices(question)]
    offered = " · ".join(f"**{name}**" if choice in question.golds else name for choice, name in enumerate(named))
    title = "A lost question" if of.is_lost else "One of the questions"
    words = f"**{title}:** “{asked} …” {offered}"
    said = [(who, answers) for who, answers in (("full", measured.full), ("pruned", measured.pruned)) if answers]
    if len(named) > 1 and said and all(len(answers) > place for _, answers in said):
        if measured.pruned is measured.full:
            said = said[:1]
        words += f" ({', '.join(f'the {who} model: {named[int(answers.predicted[place])]}' for who, answers in said)})"
    if at is not None and not is_within:
        words += f"  \n**Decided by:** “{_marked(prompt, *at.line, at)}”"
    return f":small[{words}]"


def draw_example(x: Experiment, measured: AnswersSoFar, found: Look | None) -> None:
    """Draws the question, and the link to the Attention screen."""
    of = example(x, measured)
    st.markdown(example_in_words(x, measured, of))
    if found is None or found.digest != text_digest(of.prompt):
        return
    label = f"{found.head} looks at that word ({whole_percent(found.share)})"
    [(layer, head)] = parse_heads(found.head, x.shape)
    if measured.mask is not None and not measured.mask.heads[layer][head]:
        label = f"In the full model, {label}"
    if st.button(label, icon=":material/visibility:", type="tertiary", key="example look", help=LOOK_HELP):
        open_attention(f"A question of {x.task.title}", of.prompt, found.head, found.token)


def decided_by(x: Experiment, question: Question) -> Copied | None:
    """Returns the copied word of a question; None for tasks whose answers are not copied, or are at other examples."""
    needs = task_info(x.task.name).needs
    is_elsewhere = needs == "examples" and x.task.labels == "shuffled"
    return copied(question) if needs in COPYING and not is_elsewhere else None


def question_start(prompt: str) -> int:
    """Returns where the question begins after the examples; if it is long, the first of its last words."""
    block = prompt.rfind("\n\n") + 2 if "\n\n" in prompt else 0
    space = re.compile(r"\s+").search(prompt, len(prompt) - TAIL) if len(prompt) - block > TAIL else None
    return space.end() if space is not None else max(block, len(prompt) - TAIL)


def _prompt(question: Question) -> str:
    return question.contexts[question.golds[0]].rstrip()


def _marked(prompt: str, begins: int, ends: int, at: Copied | None) -> str:
    """Returns a part of the prompt in one line, with the copied word marked; Markdown."""
    if at is None:
        return _one_line(prompt[begins:ends])
    before, word, after = prompt[begins : at.word[0]], prompt[slice(*at.word)], prompt[at.word[1] : ends]
    return f"{_one_line(before)}:violet-background[{plain(word)}]{_one_line(after)}"


def _one_line(text: str) -> str:
    return plain(re.sub(r"\s*\n\s*", " / ", text))
