"""Labels of the solved examples: prompts equal those that a plain loop writes from the rows."""

import json
import re
from dataclasses import replace
from itertools import permutations
from operator import eq

import pytest

from cache.typed_json import decode_json
from engine.errors import HeadroomError, UsageError
from engine.questions.chats import ChatTemplate
from engine.questions.labels import WORDS
from engine.questions.rendering import TaskSpec, render_questions
from engine.requests import Sweep
from tests.engine.fixtures import refused_by
from tests.engine.test_chats import TURNS

ANSWERS = [f"answer {letter}" for letter in "abcdefghijkl"]


def rows_in(folder, answers, n=12):
    """(a task file, the rows that are asked, those of examples by their text): choices are not always in order."""
    asked, train = [], []
    for at in range(n):
        choices = [*answers[at % 2 :], *answers[: at % 2]]
        row = {"choices": choices, "gold": at * at // 3 % len(answers)}
        asked.append({"context": f"Q{at}", **row})
        train.append({"context": f"T{at}", **row})
    for name, rows in (("own.jsonl", asked), ("own.train.jsonl", train)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "own.jsonl"), asked, {f"{row['context']} {answer_of(row)}": row for row in train}


def answer_of(row):
    return row["choices"][row["gold"]]


@pytest.mark.parametrize(("answers", "shots"), [(ANSWERS, 5), (["no", "yes"], 5), (["no", "yes"], 2)])
def test_shuffled_answers_are_at_other_examples_as_far_as_they_differ(answers, shots, tmp_path):
    file, _, rows = rows_in(tmp_path, answers)
    true, shuffled = (render_questions(TaskSpec(file, shots, labels=labels)) for labels in ("true", "shuffled"))
    n_kept = 0
    for one, other in zip(true.questions, shuffled.questions, strict=True):
        *examples, asked = one.contexts[0].split("\n\n")
        own, starts = [answer_of(rows[each]) for each in examples], [rows[each]["context"] for each in examples]
        *moved, last = other.contexts[0].split("\n\n")
        given = [each.removeprefix(f"{start} ") for start, each in zip(starts, moved, strict=True)]
        assert last == asked and replace(other, contexts=one.contexts, digest=one.digest) == one
        assert sorted(given) == sorted(own)
        least = min(sum(map(eq, own, order)) for order in permutations(own))
        assert sum(map(eq, own, given)) == least
        n_kept += least
    assert shuffled.labels_kept == n_kept / (shots * len(true.questions)) and true.labels_kept == 0
    assert shuffled.questions != true.questions


def test_same_examples_have_the_same_shuffled_answers(tmp_path):
    spec = TaskSpec(rows_in(tmp_path, ANSWERS)[0], 5, same_examples=True, labels="shuffled")
    questions = render_questions(spec).questions
    assert len({each.contexts[0].rpartition("\n\n")[0] for each in questions}) == 1
    assert questions == render_questions(spec).questions != render_questions(replace(spec, seed=1)).questions


@pytest.mark.parametrize("chat", [None, ChatTemplate(TURNS)])
def test_unrelated_words_stand_for_the_choices_of_examples_and_question(chat, tmp_path):
    file, rows, _ = rows_in(tmp_path, ["yes", "no", "maybe"])
    words, spec = {"maybe": WORDS[0], "no": WORDS[1], "yes": WORDS[2]}, TaskSpec(file, 3, chat=chat)
    true, unrelated = (render_questions(replace(spec, labels=labels)).questions for labels in ("true", "unrelated"))
    for row, one, other in zip(rows, true, unrelated, strict=True):
        prompt = re.sub(r"\b(yes|no|maybe)\b", lambda found: words[found[0]], one.contexts[0])
        choices = [words[choice] for choice in row["choices"]]
        assert other.contexts == (prompt,) * 3 != one.contexts
        assert [each.strip() for each in other.continuations] == choices
        assert other.golds == one.golds and other.n_chars == tuple(map(len, choices))


@pytest.mark.parametrize(("task", "shots", "labels", "match"), [
    ("demo_sort", 1, "shuffled", "at least 2 examples in the prompt; got 1"),
    ("demo_blank", 5, "shuffled", "answers that follow the question; choose true labels"),
    ("demo_blank", 5, "unrelated", "the same choices in all questions, at most 10; choose shuffled labels"),
])  # fmt: skip
def test_tasks_without_such_labels_are_refused(task, shots, labels, match):
    refused_by(HeadroomError, match, lambda: render_questions(TaskSpec(task, shots, labels=labels)))


def test_word_pairs_are_shuffled_and_without_examples_nothing_is():
    assert render_questions(TaskSpec("pairs_capital", 5, labels="shuffled")).labels_kept == 0
    true, shuffled = TaskSpec("demo_sort"), TaskSpec("demo_sort", labels="shuffled")
    assert render_questions(true).questions == render_questions(shuffled).questions


def test_labels_are_in_keys_and_plans_and_true_ones_change_none():
    true, *others = (TaskSpec("piqa", 2, labels=labels) for labels in ("true", "shuffled", "unrelated"))
    assert "labels" not in true.fields() and true.manner == ""
    assert [other.fields() for other in others] == [true.fields() | {"labels": other.labels} for other in others]
    assert all(decode_json(json.dumps(each.fields()).encode(), TaskSpec, "plan") == each for each in (true, *others))
    refused_by(UsageError, "labels 'none' are unknown", lambda: TaskSpec("piqa", labels="none"))
    [task] = Sweep(tasks="piqa", shots="2", labels="shuffled", out="x.csv").grid()
    assert task == others[0]
