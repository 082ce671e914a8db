"""The list of questions says what was measured, and shows a question as the model reads it."""

import json
import re

import numpy as np
import pytest

from engine.accuracy.evaluation import Answers
from engine.questions.rendering import Question, TaskSpec, render_questions
from engine.requests import Evaluate
from engine.views.questions import choices, margins, own_words, question_frame
from pages.ui.page import runtime
from pages.ui.page.tables import plain
from tests.pages.conftest import N, experiment_of, job_states, settled


def answers(scores, golds, by_greedy=False, right=None):
    asked = tuple(
        Question(at, ("Q",) * len(row), tuple(f" {letter}" for letter in "abc"[: len(row)]), gold, (2,) * len(row), "")
        for at, (row, gold) in enumerate(zip(scores, golds, strict=True))
    )
    table = np.full((len(scores), max(map(len, scores))), np.nan)
    for at, row in enumerate(scores):
        table[at, : len(row)] = row
    greedy = np.zeros(table.shape, bool) if right is None else np.array(right)[:, None]
    return Answers(asked, table, greedy, np.zeros(len(scores), np.int32), by_greedy)


def test_a_margin_is_the_best_right_answer_less_the_best_wrong_one():
    rng = np.random.default_rng(0)
    scores = [rng.normal(size=rng.integers(2, 4)).tolist() for _ in range(40)]
    golds = [tuple(rng.permutation(len(row))[: rng.integers(1, len(row))].tolist()) for row in scores]
    for found, row, gold in zip(margins(answers(scores, golds)), scores, golds, strict=True):
        best = {right: max(s for at, s in enumerate(row) if (at in gold) is right) for right in (True, False)}
        assert found == pytest.approx(best[True] - best[False])
    said = answers(scores, golds)
    np.testing.assert_array_equal(margins(said) > 0, said.correct)


def test_lost_and_gained_are_counted_as_the_figure_counts_them():
    golds = [(0,)] * 4
    full = answers([[0, -1], [0, -1], [-1, 0], [-1, 0]], golds)
    pruned = answers([[0, -1], [-1, 0], [0, -1], [-1, 0]], golds)
    frame = question_frame(full, pruned)
    assert frame["change"].tolist() == ["same", "lost", "gained", "same"]
    assert frame["full"].tolist() == ["✓ a", "✓ a", "✗ b", "✗ b"]
    assert frame["pruned"].tolist() == ["✓ a", "✗ b", "✓ a", "✗ b"]
    assert frame["pruned_margin"].tolist() == [1, -1, 1, -1]


def test_a_task_of_one_word_to_be_said_has_no_margin():
    asked = answers([[-3.0], [-1.0]], [(0,), (0,)], by_greedy=True, right=[False, True])
    frame = question_frame(asked, asked)
    assert frame["full_margin"].isna().all() and frame["full"].tolist() == ["✗ something else", "✓ the same"]


def test_what_is_asked_is_told_apart_from_the_solved_examples():
    shared = Question(0, ("one\n\ntwo\n\nthree is",) * 2, (" a", " b"), (1,), (1, 1), "")
    assert own_words(shared) == "three is" and choices(shared) == ["a", "b"]
    ends = Question(0, ("one\n\nit is A", "one\n\nit is B"), (" .", " ."), (1,), (1, 1), "")
    assert choices(ends) == ["it is A", "it is B"]


@pytest.mark.parametrize("text", ["![x](http://evil/a.png)", "**bold** _it_ `code`", ":red[x] $x$ <b> | # 1. - ~a~"])
def test_what_a_question_says_is_no_markup(text):
    assert re.sub(r"\\(.)", r"\1", plain(text)) == text
    assert not re.search(r"(?<!\\)([!\[\](*`$<|#~]|:(?=\w)|\b_|_\b)", plain(text))


def test_the_list_opens_a_question_with_its_solved_examples(open_app, questions):
    at = open_app(order="random", mask="L0H0-2 L1H*", shots="1", prune_questions="true")
    x = experiment_of(at)
    asked = render_questions(TaskSpec(str(questions), 1), None, runtime.store())
    x = type(x)(**{**vars(x), "validation": asked})
    [table] = [each.value for each in at.dataframe]
    assert len(table) == N and {"full_margin", "pruned_margin"} <= set(table.columns)
    before = job_states()
    at.number_input(key="prune_question").set_value(3)
    settled(at)
    [question] = x.questions.at(x.questions.order[2:3])
    assert question.contexts[0] in [code.value for code in at.code], "exactly as the model reads it"
    row = json.loads(questions.read_text().splitlines()[question.doc_id])
    table = next(each.value for each in at.markdown if each.value.startswith("| Choice"))
    assert all(plain(choice.strip()) in table for choice in row["choices"])
    assert any("question:**" in each.value or "questions:**" in each.value for each in at.markdown)
    at.number_input(key="prune_question").set_value(999)
    settled(at)
    assert any("999 is not one of them" in each.value for each in at.caption)
    assert {each for each in job_states() if each[0] in ("accuracy", "curve")} <= before, "nothing is computed for it"


@pytest.mark.slow("opens a screen")
def test_a_log_of_the_harness_is_shown_next_to_the_full_model_s_answers(open_app, questions, tiny_opt, tmp_path):
    at = open_app(order="random", prune_questions="true")
    samples = tmp_path / "samples_boats.jsonl"
    asked = Evaluate(model=str(tiny_opt), precision="fp32", task=str(questions), questions_out=str(samples))
    ours = asked.run(runtime.session()).value
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    first = ours.predicted[[each.doc_id for each in ours.questions].index(rows[3]["doc_id"])] == 0
    nats = ["-9.75", "-9.5", "-9.0"] if first else ["-9.0", "-9.5", "-9.75"]  # it answers otherwise
    rows[3]["filtered_resps"] = [[each, "False"] for each in nats]
    log = tmp_path / "log" / "samples_boats_2026-01-31T12-00-00.0.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps(row) + "\n" for row in rows[: N - 2]))
    at.text_input(key="prune_samples").set_value(str(log.parent))
    settled(at)
    captions = [each.value for each in at.caption]
    assert any(each.startswith(f"lm-eval: {N - 3} of {N - 2} answers are the full model's") for each in captions)
    assert any(each.startswith("2 questions are not in its log") for each in captions)
    [table] = [each.value for each in at.dataframe]
    assert (table["harness"] == "").sum() == 2
    at.segmented_control(key="prune_show").set_value("harness")
    settled(at)
    [table] = [each.value for each in at.dataframe]
    assert table["question"].tolist() == [rows[3]["doc"]["context"]]
    at.text_input(key="prune_samples").set_value(str(tmp_path / "none"))
    settled(at)
    assert any("is not a folder or file; give a file samples" in each.value.replace("\\", "") for each in at.error)
