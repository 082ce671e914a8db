"""The example question on Prune: the line that decides it, and how it opens in Text."""

import re

from streamlit.util import calc_hash

from engine.questions.labels import LABELS
from engine.questions.rendering import Question, TaskSpec
from engine.views.questions import copied, decided_by, question_start
from tests.pages.conftest import settled

PROMPT = (
    "My uncle lost the grey and new boot\n\nIn August, Frank mended the grey heavy boot\n\n"
    "Julia bought the silver apron\n\nIn April, Frank mended the grey narrow"
)


def question(prompt, answer=" boot"):
    return Question(0, (prompt, prompt), (answer, " x"), (0,), (5, 2), "d")


def found(prompt, answer=" boot"):
    at = copied(question(prompt, answer))
    return (
        None if at is None else (prompt[slice(*at.line)], prompt[: at.word[0]].count("\n\n"), prompt[slice(*at.word)])
    )


def test_the_line_that_decides_is_the_one_most_like_the_question():
    assert found(PROMPT) == ("In August, Frank mended the grey heavy boot", 1, "boot")
    assert found(PROMPT.replace("boot", "boots")) is None, "whole words only"
    twice = "Old boot\n\nNew boot\n\nA dusty"
    assert found(twice) == ("New boot", 1, "boot"), "the last of equals"
    inside = "The list is: goose rake goat. Again: goose rake"
    assert found(inside, " goat") == (inside, 0, "goat"), "the question itself"
    assert found(PROMPT, " ") is None and found("") is None


def test_shuffled_answers_of_examples_decide_nothing():
    decides = {(task, labels): decided_by(TaskSpec(task, 5, labels=labels), question(PROMPT))
               for task in ("demo_outfit", "demo_copy") for labels in LABELS}  # fmt: skip
    assert [key for key, at in decides.items() if at is None] == [("demo_outfit", "shuffled")]


def test_the_question_begins_after_the_examples_or_at_a_word():
    pair = "Q: Peru\nA: Lima\n\nQ: Kazakhstan\nA:"
    assert pair[question_start(pair) :] == "Q: Kazakhstan\nA:"
    long = "An example\n\n" + 30 * "seven " + "apron"
    assert re.fullmatch(r"(seven )+apron", long[question_start(long) :]) and len(long) - question_start(long) <= 110


def test_the_question_shows_the_copied_word_and_its_panel_opens_it_in_text(with_shipped, open_app):
    embedded = {"model": "demo", "precision": "int8", "task": "demo_outfit", "shots": "5"}
    at = open_app(**embedded, limit="16", prune_questions="true", prune_question="1")
    [said] = [each.value for each in at.main.markdown if "One of the questions" in each.value]
    word = re.search(r"Decided by:\*\* “.*:violet-background\[(\w+)\]”", said)[1]
    [link] = [each for each in at.button if each.key == "question in text"]
    link.click().run()
    assert not at.exception, at.exception[0].stack_trace
    at.wanted_page_hash = calc_hash("text")
    settled(at)
    assert at.selectbox(key="text_text").value == "A question of demo_outfit"
    assert at.session_state["own_text"].text.endswith(f" {word}"), "with its answer, which is the copied word"


def test_a_task_that_copies_nothing_shows_its_question_alone(open_app):
    at = open_app(order="random")
    [said] = [each.value for each in at.main.markdown if "One of the questions" in each.value]
    assert "Decided by" not in said
