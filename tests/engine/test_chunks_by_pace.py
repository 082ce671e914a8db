"""Where 16 questions take long the first figure comes from 4; what is stored in either size is found."""

import numpy as np
import pytest

from engine.accuracy import evaluation
from engine.accuracy.evaluation import evaluate, expected_s, recall
from engine.models.loading import Models
from engine.models.masks import Mask
from engine.models.rates import learn
from engine.questions.requests import TaskSpec
from engine.studies.surveys import Setting
from engine.studies.sweeps import points, sweep
from tests.engine.fixtures import last, questions_in, subject_in, write_questions

SLOW, FAST = 0.0, 1e9  # seconds of a chunk that count as long


@pytest.fixture
def about(lab, tiny_opt, tmp_path):
    subject = subject_in(lab, tiny_opt)
    return lab, subject, questions_in(write_questions(tmp_path / "own.jsonl", 40), lab, 38), Mask.full(subject.shape)


def figures(about):
    """How many questions each new value has."""
    counts = [len(step.value) for step in evaluate(*about) if step.value is not None]
    return sorted(set(counts) - {0})


def test_small_chunks_give_the_first_figure_and_the_same_numbers(about, monkeypatch):
    monkeypatch.setattr(evaluation, "LONG_S", FAST)
    assert figures(about) == [16, 32, 38]
    whole = recall(*about)
    about[0].store.clear()
    monkeypatch.setattr(evaluation, "LONG_S", SLOW)
    assert figures(about) == [4, 8, 12, 16, 20, 24, 28, 32, 36, 38]
    found = recall(*about)
    np.testing.assert_allclose(found.log_likelihood_nats, whole.log_likelihood_nats, atol=1e-4)
    assert found.questions == whole.questions and (found.n_cut == whole.n_cut).all()


@pytest.mark.parametrize("before, after", [(SLOW, FAST), (FAST, SLOW)])
def test_what_is_stored_in_either_size_is_found(before, after, about, monkeypatch):
    monkeypatch.setattr(evaluation, "LONG_S", before)
    last(evaluate(*about))
    first = recall(*about)
    monkeypatch.setattr(evaluation, "LONG_S", after)
    monkeypatch.setattr(Models, "get", lambda *_: pytest.fail("the model was loaded"))
    assert last(evaluate(*about)).cached
    np.testing.assert_array_equal(recall(*about).log_likelihood_nats, first.log_likelihood_nats)


def test_what_was_begun_in_one_size_goes_on_in_it(about, monkeypatch):
    monkeypatch.setattr(evaluation, "LONG_S", SLOW)
    for step in evaluate(*about):
        if step.value is not None and len(step.value) == 8:
            break
    monkeypatch.setattr(evaluation, "LONG_S", FAST)
    assert len(recall(*about)) == 8
    assert figures(about) == [4, 8, 12, 16, 32, 38]


def test_a_study_asks_in_whole_chunks_however_slow_and_whatever_was_asked_before(about, monkeypatch):
    """In 8 bits, questions in other company get other answers: two machines would tell of two models."""
    lab, subject, questions, full = about
    monkeypatch.setattr(evaluation, "LONG_S", SLOW)
    last(evaluate(*about))
    file = questions.requests.task.name
    setting, wanted = Setting(subject.spec, subject.bos, n_questions=38), points([TaskSpec(file)], [0, 1000], [0])
    assert last(sweep(lab, setting, wanted, [file], compute=False)).value.rows == ()
    [*_, step] = sweep(lab, setting, wanted, [file])
    assert len(step.value.rows) == 2 and not step.cached
    asked = setting.judged(TaskSpec(file), lab.store)
    slow = recall(lab, subject, asked, full, by_pace=False)
    lab.store.clear()
    monkeypatch.setattr(evaluation, "LONG_S", FAST)
    last(evaluate(lab, subject, asked, full))
    assert len(slow) == 38
    np.testing.assert_array_equal(slow.log_likelihood_nats, recall(lab, subject, asked, full).log_likelihood_nats)


def test_the_pace_is_that_of_the_passes(about):
    lab, subject, questions, full = about
    some = questions.at(range(16))
    before = expected_s(lab, subject, some)
    assert 0 < before < evaluation.LONG_S, "a model of this size is fast"
    last(evaluate(*about))
    assert 0 < expected_s(lab, subject, some) != before
    learn(lab.store, subject, "forward", 1e9, 1e10)
    assert expected_s(lab, subject, some) > evaluation.LONG_S
