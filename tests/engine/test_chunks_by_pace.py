"""Where 16 questions take long the first figure comes from 4; what is stored in either size is found."""

from dataclasses import replace

import numpy as np
import pytest

from engine.accuracy import evaluation as module
from engine.accuracy.evaluation import evaluation
from engine.models.loading import Models
from engine.models.masks import Mask, parse_mask
from engine.questions.requests import TaskSpec
from engine.studies.surveys import StudySettings
from engine.studies.sweeps import points, sweep
from engine.timing.observed_timings import learn
from tests.engine.fixtures import last, questions_in, target_in, write_questions

SLOW, FAST = 0.0, 1e9  # seconds of a chunk that count as long


@pytest.fixture
def about(session, tiny_opt, tmp_path):
    target = target_in(session, tiny_opt)
    return (
        session,
        target,
        questions_in(write_questions(tmp_path / "own.jsonl", 40), session, 38),
        Mask.full(target.shape),
    )


def figures(about):
    """How many questions each new value has."""
    counts = [len(step.value) for step in evaluation(*about[1:]).run(about[0]) if step.value is not None]
    return sorted(set(counts) - {0})


def test_small_chunks_give_the_first_figure_and_the_same_numbers(about, monkeypatch):
    monkeypatch.setattr(module, "LONG_S", FAST)
    assert figures(about) == [16, 32, 38]
    whole = evaluation(*about[1:]).so_far(about[0])
    about[0].store.clear()
    monkeypatch.setattr(module, "LONG_S", SLOW)
    assert figures(about) == [4, 8, 12, 16, 20, 24, 28, 32, 36, 38]
    found = evaluation(*about[1:]).so_far(about[0])
    np.testing.assert_allclose(found.log_likelihood_nats, whole.log_likelihood_nats, atol=1e-4)
    assert found.questions == whole.questions and (found.n_cut == whole.n_cut).all()


@pytest.mark.parametrize("before, after", [(SLOW, FAST), (FAST, SLOW)])
def test_what_is_stored_in_either_size_is_found(before, after, about, monkeypatch):
    monkeypatch.setattr(module, "LONG_S", before)
    last(evaluation(*about[1:]).run(about[0]))
    first = evaluation(*about[1:]).so_far(about[0])
    monkeypatch.setattr(module, "LONG_S", after)
    monkeypatch.setattr(Models, "get", lambda *_: pytest.fail("the model was loaded"))
    assert last(evaluation(*about[1:]).run(about[0])).cached
    np.testing.assert_array_equal(
        evaluation(*about[1:]).so_far(about[0]).log_likelihood_nats, first.log_likelihood_nats
    )


def test_what_was_begun_in_one_size_goes_on_in_it(about, monkeypatch):
    monkeypatch.setattr(module, "LONG_S", SLOW)
    for step in evaluation(*about[1:]).run(about[0]):
        if step.value is not None and len(step.value) == 8:
            break
    monkeypatch.setattr(module, "LONG_S", FAST)
    assert len(evaluation(*about[1:]).so_far(about[0])) == 8
    assert figures(about) == [4, 8, 12, 16, 32, 38]


def test_a_study_asks_in_whole_chunks_however_slow_and_whatever_was_asked_before(about, monkeypatch):
    """In 8 bits, questions in other company get other answers: two machines would tell of two models."""
    session, target, questions, full = about
    monkeypatch.setattr(module, "LONG_S", SLOW)
    last(evaluation(*about[1:]).run(about[0]))
    file = questions.requests.task.name
    setting, wanted = StudySettings(target.spec, target.bos, n_questions=38), points([TaskSpec(file)], [0, 1000], [0])
    assert sweep(target, setting, wanted, [file]).so_far(session).rows == ()
    [*_, step] = sweep(target, setting, wanted, [file]).run(session)
    assert len(step.value.rows) == 2 and not step.cached
    asked = setting.judged(TaskSpec(file), session.store)
    slow = evaluation(target, asked, full, by_pace=False).so_far(session)
    session.store.clear()
    monkeypatch.setattr(module, "LONG_S", FAST)
    last(evaluation(target, asked, full).run(session))
    assert len(slow) == 38
    np.testing.assert_array_equal(
        slow.log_likelihood_nats, evaluation(target, asked, full).so_far(session).log_likelihood_nats
    )


def test_the_pace_is_that_of_the_passes(about):
    session, target, questions, full = about
    half = evaluation(target, questions, parse_mask("L0H*", target.shape))
    before = half.left(session).seconds_by_size(session.store, target)
    assert half.seconds(session) is None and 0 < before < module.LONG_S, "a model of this size is fast"
    last(evaluation(*about[1:]).run(about[0]))
    assert 0 < half.seconds(session) != before
    learn(session.store, target, "forward", 1e9, 1e10)
    assert half.seconds(session) > module.LONG_S


def test_what_is_left_of_some_questions_is_their_share_of_all(about):
    session, target, questions, full = about
    every = evaluation(*about[1:]).left(session)
    last(evaluation(target, replace(questions, n=16), full).run(session))
    left = evaluation(*about[1:]).left(session)
    assert left.characters["forward"] == pytest.approx(every.characters["forward"] * 22 / 38)
