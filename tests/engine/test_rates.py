"""What passes take here: learned from real ones, kept in the store, and the amounts they are multiplied with; and where
16 questions take long the first figure comes from 4."""

from dataclasses import replace

import numpy as np
import pytest

from engine.accuracy import evaluation as module
from engine.accuracy.evaluation import evaluation
from engine.importance import scores as of_importance
from engine.importance.scores import importance
from engine.models.in_memory import Models
from engine.models.masks import Mask, parse_mask
from engine.progress import Stopped, final, is_to_stop, returned
from engine.questions.rendering import Question, TaskSpec, render_questions, select
from engine.studies.surveys import SurveySettings
from engine.studies.sweeps import points, sweep
from engine.timing import observed_timings as rates
from engine.timing.observed_timings import learn
from engine.timing.workload import all_characters, characters, gradient_characters, kept_share
from tests.engine.fixtures import last, questions_in, target_in, write_questions


def question(contexts, continuations, golds=(0,)):
    return Question(0, tuple(contexts), tuple(continuations), golds, tuple(map(len, continuations)), "")


def test_nothing_is_forecast_before_anything_was_timed(store, target):
    assert rates.seconds_for(store, target, "forward", 1000) is None
    rates.learn(store, target, "forward", 1000, 2.0)
    assert rates.seconds_for(store, target, "forward", 500) == pytest.approx(1.0)
    assert rates.seconds_for(store, target, "gradient", 1000) == pytest.approx(2.0 * rates.FACTOR["gradient"])
    rates.learn(store, target, "gradient", 100, 1.0)
    assert rates.seconds_for(store, target, "gradient", 1000) == pytest.approx(10.0)
    assert rates.seconds_for(store, target, "forward", 1000) == pytest.approx(2.0), "each kind has its own"
    other = replace(target, spec=replace(target.spec, precision="bf16"))
    assert rates.seconds_for(store, other, "forward", 1000) is None, "another precision is another rate"


def test_a_rate_is_smoothed_and_a_models_first_passes_count_for_little(store, target):
    rates.learn(store, target, "forward", 1000, 9.0, are_first=True)
    assert rates.seconds_for(store, target, "forward", 1000) == pytest.approx(9.0), "better than nothing"
    for _ in range(30):
        rates.learn(store, target, "forward", 1000, 1.0)
    settled = rates.seconds_for(store, target, "forward", 1000)
    assert settled == pytest.approx(1.0, rel=0.1)
    rates.learn(store, target, "forward", 1000, 9.0, are_first=True)
    assert rates.seconds_for(store, target, "forward", 1000) == settled
    rates.learn(store, target, "forward", 1000, 2.0)
    assert settled < rates.seconds_for(store, target, "forward", 1000) < 1.6
    puts = store.n_puts
    for nothing in ((0, 1.0), (1000, 0.0)):
        rates.learn(store, target, "forward", *nothing)
    assert store.n_puts == puts


def test_a_damaged_record_is_no_rate(store, target):
    store.put(rates._key(target), b"nonsense")
    assert rates.seconds_for(store, target, "forward", 1) is None
    rates.learn(store, target, "forward", 10, 1.0)
    assert rates.seconds_for(store, target, "forward", 10) == pytest.approx(1.0)


def test_amounts_by_hand():
    shared = question(["a" * 90] * 2, ["b" * 10, "c" * 20])
    assert characters([shared]) == 120 and gradient_characters([shared], True) == min(120 * 3, 2 * 210)
    assert (
        gradient_characters([shared], False) == 2 * 100
        and gradient_characters([replace(shared, golds=(1,))], False) == 220
    )
    apart = question(["a" * 90, "b" * 50], ["x", "x"])
    assert characters([apart]) == 91 + 51
    many = [question(["same" * 100 + name], [" yes"]) for name in "pqr"]
    assert characters(many) == 3 * 405 - 2 * 400, "what all begin with is read once"
    assert characters([]) == 0
    mask = Mask.from_arrays(np.zeros((2, 4), bool), np.ones(2, bool))
    assert (
        kept_share(mask) == pytest.approx(2 / 3)
        and kept_share(Mask.from_arrays(np.zeros((2, 4), bool), np.zeros(2, bool))) == 0.05
    )


def test_measuring_teaches_the_rate(session, target):
    from engine.accuracy.evaluation import evaluation

    questions = select(render_questions(TaskSpec("demo_copy", 0), None, session.store), 32, "stratified")
    steps = list(evaluation(target, questions, Mask.full(target.shape)).run(session))
    assert rates.seconds_for(session.store, target, "forward", all_characters(questions)) > 0
    shares = [step.share for step in steps if step.share is not None]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0) and steps[-1].value is not None


def test_gradients_that_give_way_again_and_again_get_on_and_are_the_same_numbers(session, target, monkeypatch):
    """Left in the middle of a pass, forwards and backwards; what is finished is not done twice."""
    monkeypatch.setattr(of_importance, "GRADIENT_TOKENS_SMALL", 64)
    questions = select(render_questions(TaskSpec("demo_copy", 0), None, session.store), 16, "stratified")
    plain = of_importance._chunk_pieces(target, questions, "gate", None)[0]
    loaded = returned(session.loaded(target))
    undisturbed, _ = returned(plain.measure(loaded))
    passes, real, asked = [], of_importance.gate_gradients, [0]

    def counted(*given):
        passes.append("begun")
        found = real(*given)
        passes.append("ended")
        return found

    def sometimes():
        asked[0] += 1
        return asked[0] % 47 == 0

    monkeypatch.setattr(of_importance, "gate_gradients", counted)
    token, n_left = is_to_stop.set(sometimes), 0
    try:
        for _ in range(200):
            try:
                scores = final(importance(target, questions, "gate").run(session))
                break
            except Stopped:
                n_left += 1
    finally:
        is_to_stop.reset(token)
    n_groups = passes.count("ended")
    assert n_left > 0 and passes.count("begun") == n_groups + n_left and n_groups > 2, "nothing finished was done twice"
    assert np.array_equal(scores.gate_heads, undisturbed["heads"][: questions.n], equal_nan=True)
    assert not loaded.unfinished, "what is stored is held no longer"
    assert not any(layer._forward_pre_hooks for layer in loaded.family.layer_list(loaded.model))


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


def test_a_paper_study_asks_in_whole_chunks_however_slow_and_whatever_was_asked_before(about, monkeypatch):
    """In 8 bits, questions in other company get other answers: two machines would tell of two models."""
    session, target, questions, full = about
    monkeypatch.setattr(module, "LONG_S", SLOW)
    last(evaluation(*about[1:]).run(about[0]))
    file = questions.rendered.task.name
    setting, wanted = SurveySettings(target.spec, target.bos, n_questions=38), points([TaskSpec(file)], [0, 1000], [0])
    assert sweep(target, setting, wanted, [file]).so_far(session).rows == ()
    [*_, step] = sweep(target, setting, wanted, [file]).run(session)
    assert len(step.value.rows) == 2 and not step.cached
    asked = setting.validation_questions(TaskSpec(file), session.store)
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
