"""One head with an ideal pattern in place of its own, on the built-in texts and on tasks: parts of what is known of it,
as `engine.studies.one_head` has them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.accuracy.evaluation import Answers
from engine.errors import Cancelled, HeadroomError
from engine.heads.attention import Head
from engine.heads.idealised import (
    PATTERNS,
    SIDES,
    Ideal,
    idealise_questions,
    idealise_texts,
    recall_idealised_questions,
    recall_idealised_texts,
)
from engine.measurement import Workload
from engine.models.masks import Mask
from engine.models.subject import Lab, Subject
from engine.progress import Progress, last_value
from engine.questions.amounts import all_characters
from engine.questions.requests import TaskSpec
from engine.studies.surveys import Setting, in_words

Found = Iterator[Progress[dict[str, Any]]]  # its values are fields of a Portrait


def ideal_texts(lab: Lab, subject: Subject, head: Head, texts: Mapping[str, str], compute: bool) -> Found:
    """The texts with each pattern: `ideal_texts` of a Portrait."""
    ideal, listed = Ideal((head,), Mask.full(subject.shape)), list(texts.values())
    found = recall_idealised_texts(lab, subject, listed, ideal)
    if found is not None:
        yield Progress(1, 1, {"ideal_texts": found}, cached=True)
    elif compute:
        for step in idealise_texts(lab, subject, listed, ideal):  # shown when all of them are there
            yield step.map(lambda losses: {"ideal_texts": losses} if len(losses["full"]) == len(listed) else {})
    else:
        left = Workload({"patterns": float(len(SIDES) * sum(map(len, listed)))})
        yield Progress(1, 1, {"left": {"ideal-texts": left}}, cached=True)


def ideal_tasks(lab: Lab, subject: Subject, head: Head, of: tuple[Setting, Sequence[TaskSpec]], compute: bool) -> Found:
    """The tasks with each pattern: `ideal_answers` of a Portrait. A task that cannot be had is set aside."""
    ideal, (setting, tasks) = Ideal((head,), Mask.full(subject.shape)), of
    found: dict[TaskSpec, dict[str, Answers]] = {}
    left, failed = 0.0, {}
    for number, task in enumerate(tasks):
        answers, cached = None, True
        try:
            questions = setting.judged(task, lab.store)
            answers = recall_idealised_questions(lab, subject, questions, ideal)
            if answers is None and compute:
                steps, cached = idealise_questions(lab, subject, questions, ideal), False
                answers = yield from last_value(steps, number, len(tasks), 1, in_words(task))
            if answers is None:
                left += len(PATTERNS) * all_characters(questions)
            else:
                found[task] = answers
        except Cancelled:
            raise
        except HeadroomError as error:
            failed = {"failed": {"ideal-tasks": str(error)}}
        yield Progress(number + 1, len(tasks), {"ideal_answers": dict(found), **failed}, cached=cached)
    if left:
        yield Progress(1, 1, {"left": {"ideal-tasks": Workload({"patterns": left})}}, cached=True)
