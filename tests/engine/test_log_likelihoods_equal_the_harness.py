"""Every choice's log-likelihood is what lm-evaluation-harness's own HFLM computes, and so are acc and acc_norm."""

import os
from pathlib import Path

import numpy as np
import pytest

from engine.accuracy.evaluation import Answers, accuracy
from engine.accuracy.scoring import score
from engine.questions import rows
from engine.questions.encoding import encode_questions
from engine.questions.rendering import TaskSpec, render_questions
from engine.questions.tasks import HARNESS_TASKS
from tests.conftest import IS_THOROUGH, REPOSITORY
from tests.engine.fixtures import STOCK, finished, in_turns, loaded, write_questions

SHARED = Path(os.environ.get("HEADROOM_TASK_DATA") or REPOSITORY.parent / "shared" / "task_data")


def skip_without_rows(name):
    if not (SHARED / name).is_dir():
        pytest.skip(f"the rows of {name} are not in {SHARED}")


def ours(model, questions, bos, by_greedy=False):
    encoded = encode_questions(questions, model.tokenizer, bos, model.identity.shape.n_ctx)
    scores, greedy = finished(score(model, encoded))
    return Answers(tuple(questions), scores, greedy, np.zeros(len(questions)), by_greedy)


def harness(model, questions, bos):
    from lm_eval.models.huggingface import HFLM

    n_ctx = model.identity.shape.n_ctx  # Mistral's window ends it before its last position
    lm = HFLM(pretrained=model.model, tokenizer=model.tokenizer, add_bos_token=bos, batch_size=4, max_length=n_ctx)
    return answered(lm, questions)


def answered(lm, questions):
    """(log-likelihood, whether it is greedy) of every choice, question by question, as the harness has them."""
    from lm_eval.api.instance import Instance

    pairs = [(c, d) for q in questions for c, d in zip(q.contexts, q.continuations, strict=True)]
    answers = iter(lm.loglikelihood([Instance("loglikelihood", {}, pair, 0) for pair in pairs], disable_tqdm=True))
    return [[next(answers) for _ in q.contexts] for q in questions]


def compare(model, questions, bos, by_greedy=False):
    answers, reference = ours(model, questions, bos, by_greedy), harness(model, questions, bos)
    for row, expected in enumerate(reference):
        got = answers.log_likelihood_nats[row, : len(expected)]
        np.testing.assert_allclose(got, [value for value, _ in expected], atol=1e-3)
        assert [bool(g) for g in answers.greedy[row, : len(expected)]] == [greedy for _, greedy in expected]
    right = [
        expected[0][1] if by_greedy else int(np.argmax([v for v, _ in expected])) in q.golds
        for q, expected in zip(questions, reference, strict=True)
    ]
    right_norm = [
        expected[0][1]
        if by_greedy
        else int(np.argmax([v / n for (v, _), n in zip(expected, q.n_chars, strict=True)])) in q.golds
        for q, expected in zip(questions, reference, strict=True)
    ]
    assert accuracy(answers).acc == np.mean(right)
    assert accuracy(answers).acc_norm == np.mean(right_norm)


@pytest.mark.filterwarnings("ignore")  # the harness's and its libraries' own
@pytest.mark.thorough
@pytest.mark.parametrize("family, bos", in_turns(STOCK, [True, False]))
def test_every_family(family, bos, model_of, tmp_path):
    model = model_of(family)
    file = write_questions(tmp_path / "own.jsonl", 20 if IS_THOROUGH else 6)
    for shots in (0, 2):  # with two examples most rows are longer than the window of 256 and are cut on the left
        compare(model, render_questions(TaskSpec(str(file), shots)).questions, bos)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not SHARED.is_dir(), reason="the sample rows of the sixteen tasks are not on this computer")
@pytest.mark.thorough
@pytest.mark.parametrize("name, shots", in_turns(HARNESS_TASKS, [0, 1, 5]))
def test_the_sixteen_tasks(name, shots, tiny_opt):
    skip_without_rows(name)
    rendered = render_questions(TaskSpec(name, shots), SHARED)
    questions = [q for q in rendered.questions if max(map(len, q.continuations)) < 500][:6]
    compare(loaded(tiny_opt), questions, shots != 1, rendered.greedy)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not SHARED.is_dir(), reason="the sample rows of the sixteen tasks are not on this computer")
@pytest.mark.parametrize("name", HARNESS_TASKS)
def test_the_prompts_are_the_harness_s_own(name):
    skip_without_rows(name)
    from engine.questions.harness import harness_task_of
    from engine.questions.tasks import local_files, task_info

    spec = TaskSpec(name, 5)
    files = local_files(task_info(name), SHARED)
    task = harness_task_of(spec, task_info(name), None if files is None else rows.read(task_info(name), files))
    task.build_all_requests(limit=4, rank=0, world_size=1)
    expected = [(instance.doc_id, *instance.args) for instance in task.instances]
    got = [
        (q.doc_id, c, d)
        for q in render_questions(spec, SHARED).questions[:4]
        for c, d in zip(q.contexts, q.continuations, strict=True)
    ]
    assert got == expected
