"""Questions with the answers of a model, before and after pruning, and of others next to them; the line of a prompt
that decides one."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.accuracy.evaluation import Answers
from engine.accuracy.harness_logs import HarnessAnswers
from engine.questions.rendering import Question, TaskSpec
from engine.questions.tasks import task_info
from engine.views.words import plain

if TYPE_CHECKING:
    import pandas as pd

COPYING = ("examples", "copying")  # needs of tasks whose answer is copied from the prompt (TaskInfo.needs)
TAIL = 110  # characters of the prompt
PART = re.compile(r"[^\n]+")  # a line of the prompt
WORD = re.compile(r"\w+")
LONG = 90  # characters of a question in the list
Second = tuple[str, Answers | None]  # a second model: its name, and its answers under its own mask


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


def question_frame(full: Answers | None, pruned: Answers | None, second: Second | None = None) -> "pd.DataFrame":
    """Returns one row per answered question, in the order in which they are asked; without a pruned model its columns
    are the full model's. With a `second` model also its answer (`second`), its margin, and which of the two is right
    (`between`: same, first or second); as far as it has answered."""
    import pandas as pd

    pruned = pruned or full
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


def choice_frame(full: Answers | None, pruned: Answers | None, second: Second | None = None) -> "pd.DataFrame":
    """Returns one row per question and choice: its texts, whether it is right, and of each model its log-likelihood and
    whether it is the answer."""
    import pandas as pd

    rows = []
    sides = {"full": full, "pruned": pruned, "second_model": None if second is None else second[1]}
    for at, question in enumerate(() if full is None else full.questions):
        for choice, (context, continuation) in enumerate(zip(question.contexts, question.continuations, strict=True)):
            row: dict[str, object] = {"question": question.doc_id, "choice": choice, "gold": choice in question.golds}
            for name, answers in sides.items():
                if answers is not None and at < len(answers):
                    row[f"{name}_log_likelihood_nats"] = answers.log_likelihood_nats[at, choice]
                    row[f"{name}_chosen"] = bool(answers.predicted[at] == choice)
            rows.append(row | {"context": context, "continuation": continuation})
    return pd.DataFrame(rows)


def with_harness(frame: "pd.DataFrame", ours: Answers, logged: HarnessAnswers) -> "pd.DataFrame":
    """Returns the frame with the answers that lm-eval logged (`harness`, "" if it has none), and whether they are the
    full model's (`as_harness`)."""
    answers, same, theirs = [""] * len(frame), np.ones(len(frame), bool), logged.answers
    for at, row in enumerate(logged.rows):
        answers[row] = _format_answer(ours.questions[row], theirs, at, bool(theirs.correct[at]))
    same[list(logged.rows)] = logged.is_same(ours)
    return frame.assign(harness=answers, as_harness=same)


def _with_second(frame: "pd.DataFrame", first: Answers, second: Answers) -> "pd.DataFrame":
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


def shorten(text: str) -> str:
    """Returns the text in one line: its last words, if it is long."""
    text = " ".join(text.split())
    return text if len(text) <= LONG else f"…{text[-LONG:].partition(' ')[2] or text[-LONG:]}"


@dataclass(frozen=True)
class Copied:
    """The occurrence of the right answer that decides a question: character offsets in the prompt of the `word` and of
    its `line`."""

    word: tuple[int, int]
    line: tuple[int, int]


def prompt_of(question: Question) -> str:
    """Returns the text that a model continues."""
    return question.contexts[question.golds[0]].rstrip()


def copied(question: Question) -> Copied | None:
    """Returns the occurrence of the right answer in the line that has most words in common with the question itself,
    the last of equals; None if the prompt does not contain it."""
    prompt, answer = prompt_of(question), question.continuations[question.golds[0]].strip()
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


def decided_by(task: TaskSpec, question: Question) -> Copied | None:
    """Returns the copied word of a question; None for tasks whose answers are not copied, or are at other examples."""
    needs = task_info(task.name).needs
    is_elsewhere = needs == "examples" and task.labels == "shuffled"
    return copied(question) if needs in COPYING and not is_elsewhere else None


def example_words(
    task: TaskSpec, place: int, question: Question, is_lost: bool, full: Answers | None, pruned: Answers | None
) -> str:
    """Returns the question with its choices, the right one bold, both models' answers, and the line that decides it;
    Markdown."""
    prompt, at = prompt_of(question), decided_by(task, question)
    own = prompt.rfind("\n") + 1
    is_within = at is not None and at.line[0] == own  # the question itself has the word
    begins = own if is_within else question_start(prompt)
    wording = "…" if begins and prompt[begins - 1] != "\n" else ""
    wording += _marked(prompt, begins, len(prompt), at if is_within else None)
    named = [plain(shorten(choice)) for choice in choices(question)]
    offered = " · ".join(f"**{name}**" if choice in question.golds else name for choice, name in enumerate(named))
    title = "A lost question" if is_lost else "One of the questions"
    words = f"**{title}:** “{wording} …” {offered}"
    sides = [(who, answers) for who, answers in (("full", full), ("pruned", pruned)) if answers]
    if len(named) > 1 and sides and all(len(answers) > place for _, answers in sides):
        if pruned is full:
            sides = sides[:1]
        words += f" ({', '.join(f'the {who} model: {named[int(answers.predicted[place])]}' for who, answers in sides)})"
    if at is not None and not is_within:
        words += f"  \n**Decided by:** “{_marked(prompt, *at.line, at)}”"
    return f":small[{words}]"


def question_start(prompt: str) -> int:
    """Returns where the question begins after the examples; if it is long, the first of its last words."""
    block = prompt.rfind("\n\n") + 2 if "\n\n" in prompt else 0
    space = re.compile(r"\s+").search(prompt, len(prompt) - TAIL) if len(prompt) - block > TAIL else None
    return space.end() if space is not None else max(block, len(prompt) - TAIL)


def _marked(prompt: str, begins: int, ends: int, at: Copied | None) -> str:
    """Returns a part of the prompt in one line, with the copied word marked; Markdown."""
    if at is None:
        return _one_line(prompt[begins:ends])
    before, word, after = prompt[begins : at.word[0]], prompt[slice(*at.word)], prompt[at.word[1] : ends]
    return f"{_one_line(before)}:violet-background[{plain(word)}]{_one_line(after)}"


def _one_line(text: str) -> str:
    return plain(re.sub(r"\s*\n\s*", " / ", text))
