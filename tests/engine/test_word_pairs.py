"""Tasks of word pairs: the included ones, a file of one's own, and prompts whose examples are true or shuffled."""

from dataclasses import replace

import pytest
from transformers import AutoTokenizer

from engine.demo import model_folder
from engine.errors import HeadroomError
from engine.questions.rendering import TaskSpec, render_questions
from engine.questions.word_pairs import N_SHOTS, PairTask, included_tasks, read_pairs
from tests.engine.fixtures import refused_by


def test_eight_tasks_of_about_a_hundred_train_and_test_pairs_are_included(tmp_path):
    tasks = included_tasks(tmp_path)
    assert len(tasks) >= 8 and all(min(len(task.train), len(task.test)) >= 90 for task in tasks)
    for task in tasks:
        assert len({pair.question for pair in task.pairs}) == len(task.pairs)
    assert {task.name for task in tasks} >= {"country-capital", "word-opposite", "word-first letter"}


def test_the_included_model_has_the_tasks_that_examples_explain():
    tasks = [task.tokenized(AutoTokenizer.from_pretrained(model_folder())) for task in included_tasks(model_folder())]
    assert len(tasks) == 10 and all(task.is_usable and not task.n_dropped for task in tasks)
    for task in tasks:
        check_prompts(task)


def test_first_tokens_of_answers_are_different_and_dropped_pairs_are_counted(tmp_path, tiny_opt):
    tokenizer = AutoTokenizer.from_pretrained(tiny_opt)
    for task in included_tasks(tmp_path):
        found = task.tokenized(tokenizer)
        tokens = [tokenizer(f"A: {pair.answer}").input_ids for pair in found.pairs]
        start = tokenizer("A:").input_ids
        assert [each[len(start)] for each in tokens] == [pair.token for pair in found.pairs]
        assert len({pair.token for pair in found.pairs}) == len(found.pairs) == len(task.pairs) - found.n_dropped
        if found.is_usable:
            check_prompts(found)


def check_prompts(task: PairTask):
    """Examples are of different train pairs; shuffled ones have the answers of others, which begin differently; all
    depends on the number alone."""
    train = {f"{task.form.format(pair.question)} {pair.answer}": pair for pair in task.train}
    for number in range(5):
        for split, pairs in (("train", task.train), ("test", task.test)):
            true, shuffled = (task.prompt(split, number, each) for each in (False, True))
            [pair] = {each for each in pairs if task.asked(each) == replace(true, contexts=task.asked(each).contexts)
                      and true.contexts[0].endswith(f"\n\n{task.asked(each).contexts[0]}")}  # fmt: skip
            (*examples, last), (*moved, also_last) = (each.contexts[0].split("\n\n") for each in (true, shuffled))
            assert last == also_last == task.form.format(pair.question)
            shots = [train[example] for example in examples]
            assert len({*shots}) == N_SHOTS and pair not in shots
            starts = [task.form.format(shot.question) for shot in shots]
            given = [each.removeprefix(start)[1:] for start, each in zip(starts, moved, strict=True)]
            assert sorted(given) == sorted(shot.answer for shot in shots)
            first = {shot.answer: shot.token for shot in shots}
            assert all(first[answer] != shot.token for answer, shot in zip(given, shots, strict=True))
            assert true == task.prompt(split, number)
    assert task.prompt("test", 0) != task.prompt("test", 1)


def test_a_file_of_ones_own(tmp_path):
    file = tmp_path / "own.csv"
    file.write_text('animal,sound,"a, b",c\ncat, meow,x,y\ndog,woof,,\n\n"cow",moo,x2,y2\n', encoding="utf-8-sig")
    first, second = read_pairs(file)
    assert (first.name, second.name) == ("animal-sound", "a, b-c")
    assert [pair[:3] for pair in first.pairs] == [("cat", "meow", True), ("dog", "woof", False), ("cow", "moo", True)]
    assert [pair[:2] for pair in second.pairs] == [("x", "y"), ("x2", "y2")] and not second.is_usable
    refused_by(HeadroomError, "No such file", lambda: read_pairs(tmp_path / "none.csv"))


@pytest.mark.filterwarnings("ignore")
def test_pairs_of_ones_own_are_asked_like_the_included_ones(tmp_path):
    pairs = {}
    for split, file in (("train", "mine.train.csv"), ("validation", "mine.csv")):
        asked = render_questions(TaskSpec("pairs_plural", 0, split), None, None).questions
        pairs[split] = [(each.contexts[0][3:-3], each.continuations[0][1:]) for each in asked]
        (tmp_path / file).write_text(
            "".join(f"{question},{answer}\n" for question, answer in [("a", "b"), *pairs[split]])
        )
    own, included = (
        render_questions(TaskSpec(name, 3), None, None) for name in (str(tmp_path / "mine.csv"), "pairs_plural")
    )
    assert own.greedy and own.questions == included.questions and len(own.questions) > 90
