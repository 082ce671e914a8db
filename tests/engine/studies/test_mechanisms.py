"""What in-context learning loses without kinds of heads: sets of heads, each row recounted from answers, intervals, and
the sentence."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import rankdata

from cache import Store
from engine.accuracy.evaluation import evaluation
from engine.errors import UsageError
from engine.importance.scores import importance
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.models.session import Session
from engine.progress import final
from engine.questions.rendering import TaskSpec
from engine.shapes import ModelShape
from engine.studies import mechanisms as module
from engine.studies.mechanism_findings import mechanisms_finding
from engine.studies.mechanisms import (
    FULL,
    RANDOM,
    Mechanisms,
    MechanismSettings,
    RemovedHeads,
    depths,
    mean_of_tasks,
    mechanisms,
    overlaps,
    sets_of_heads,
)
from engine.studies.surveys import SurveySettings
from tests.engine.fixtures import refused_by, target_in, write_questions

SHAPE = ModelShape(4, 8, 8, 32, 4, 64, 512, 256)
RISING = np.arange(32.0).reshape(4, 8)
SCORES = {"induction": RISING, "function vector": np.roll(RISING, 1)}


def test_sets_are_the_top_heads_and_leave_those_of_other_kinds_out():
    settings = MechanismSettings(("task",), shares=(10, 100), kinds=(*SCORES,), excludes=True, n_random=2)
    found = sets_of_heads(SHAPE, settings, SCORES)
    assert len(found) == settings.n_sets == 13 and found[0] == RemovedHeads(FULL)
    heads = {(each.kind, each.share, each.excludes, each.draw): each.heads for each in found[1:]}
    assert heads["induction", 10, False, 0] == (31,), "at least one head"
    assert heads["induction", 100, False, 0] == (31, 30, 29)
    assert heads["function vector", 100, False, 0] == (0, 31, 30), "0 is the highest here"
    assert heads["induction", 100, True, 0] == (29, 28, 27), "31 and 30 are the other kind's"
    assert heads["function vector", 100, True, 0] == (0, 28, 27)
    drawn = [heads[RANDOM, 100, False, draw] for draw in range(2)]
    assert all(len({*each}) == 3 for each in drawn) and drawn[0] != drawn[1]
    assert found == sets_of_heads(SHAPE, settings, SCORES), "the same draws again"


def test_kinds_overlap_and_lie_in_layers():
    [row] = overlaps(SHAPE, SCORES)
    rho = np.corrcoef([rankdata(each) for each in SCORES.values()])[0, 1]
    assert (row["shared"], row["n"]) == (2, 3) and row["srcc"] == pytest.approx(rho)
    assert depths(SHAPE, SCORES) == {"induction": 1.0, "function vector": pytest.approx(2 / 3)}


def test_the_interval_is_that_of_a_bootstrap_and_never_a_point():
    generator = np.random.default_rng(0)
    tasks = [generator.choice([-1.0, 0.0, 1.0], n, p=[0.1, 0.5, 0.4]) for n in (300, 200)]
    found = mean_of_tasks(tasks)
    assert found.points == pytest.approx(100 * np.mean([each.mean() for each in tasks]))
    drawn = [np.mean([generator.choice(each, len(each)).mean() for each in tasks]) for _ in range(4000)]
    low, high = 100 * np.percentile(drawn, [2.5, 97.5])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.6)
    nothing = mean_of_tasks([np.zeros(20)])
    assert nothing.low < -5 and nothing.high > 5, "20 questions without a change are not certain"


def answered(few, zero, n=100):
    """How many of n questions are right, with examples and without."""
    return {"task": np.array([[at < right for at in range(n)] for right in (few, zero)])}


def test_the_finding_names_the_kind_that_costs_most_if_it_costs_more_than_random_heads():
    settings = MechanismSettings(("task",), shares=(100,), kinds=(*SCORES,), n_random=2)
    sets = sets_of_heads(SHAPE, settings, SCORES)
    rights = {FULL: (90, 30), "induction": (40, 30), "function vector": (60, 30), RANDOM: (88, 30)}
    found = Mechanisms(settings, SCORES, {each: answered(*rights[each.kind]) for each in sets})
    assert found.gain == pytest.approx(60) and found.at_random(100) == pytest.approx((2, 2))
    assert mechanisms_finding(found, SHAPE) == (
        "5 examples add 60 points; without the 3 top induction heads, only 10. Without as many random heads 58 or more."
    )
    of_rights = {"induction": (10, 31)}, {"induction": (40, 30), "function vector": (42, 30)}
    says = "none: answers get worse (−21).", "vector heads cost about as much."
    for changed, words in zip(of_rights, says, strict=True):
        every = {each: answered(*(rights | changed)[each.kind]) for each in sets}
        assert words in mechanisms_finding(Mechanisms(settings, SCORES, every), SHAPE)
    four, retrieves = replace(settings, shares=(130,), kinds=(*SCORES, "retrieval")), SCORES | {"retrieval": RISING + 1}
    low = rights | {"induction": (28, 30), "function vector": (29, 30), "retrieval": (28, 30)}
    every = {each: answered(*low[each.kind]) for each in sets_of_heads(SHAPE, four, retrieves)}
    same = "Induction and retrieval heads are the same 4. Induction and function-vector heads are nearly the same too."
    assert mechanisms_finding(Mechanisms(four, retrieves, every), SHAPE).endswith(same)
    close = {each: answered(*((43, 30) if each.draw == 1 else rights[each.kind])) for each in sets}
    assert Mechanisms(settings, SCORES, close).lost(sets[1]).low > 39, (
        "a clear loss, of 3 points more than a random set"
    )
    assert not Mechanisms(settings, SCORES, close).beyond_random(sets[1])
    assert mechanisms_finding(Mechanisms(settings, SCORES, close), SHAPE).startswith(
        "No kind of heads is needed clearly more"
    )
    early = replace(found, answered={each: found.answered[each] for each in sets[:-1]})
    assert found.beyond_random(sets[1]) and not early.beyond_random(sets[1]), "before all random sets are measured"
    assert mechanisms_finding(early, SHAPE) == ""
    rights |= {"induction": (89, 30), "function vector": (88, 30)}
    assert "No kind" in mechanisms_finding(
        Mechanisms(settings, SCORES, {x: answered(*rights[x.kind]) for x in sets}), SHAPE
    )
    assert (
        mechanisms_finding(Mechanisms(settings, SCORES, {x: answered(*rights[x.kind]) for x in sets[:3]}), SHAPE) == ""
    )


def test_rows_are_those_of_single_evaluations(tiny_opt, tmp_path, session):
    tasks = [str(write_questions(tmp_path / f"{name}.jsonl", seed=seed)) for seed, name in enumerate("ab")]
    target, setting = target_in(session, tiny_opt, "fp32"), SurveySettings(LoadSpec(), n_questions=12, n_ranking=8)
    settings = MechanismSettings(tuple(tasks), 2, (100,), ("induction", "importance"), True, 1)
    wanted = mechanisms(target, setting, settings)
    assert wanted.left(session).characters["forward"] > 0
    found = final(wanted.run(session))
    assert wanted.stored(session) is not None and not wanted.left(session).characters
    by_hand = np.zeros((2, 4))
    for task in tasks:
        questions = setting.train_questions(TaskSpec(task, 2), session.store)
        scores = final(importance(target, questions, "heads-one-divisor").run(session)).scores
        by_hand += scores / np.abs(scores).sum() / 2
    np.testing.assert_allclose(found.scores["importance"], by_hand)
    for removed in found.answered:
        heads = np.ones(8, bool)
        heads[list(removed.heads)] = False
        mask = Mask.from_arrays(heads.reshape(2, 4), np.ones(2, bool))
        gains = {}
        for each in (Mask.full(target.shape), mask):
            right = {}
            for spec in (TaskSpec(task, shots) for task in tasks for shots in (2, 0)):
                questions = setting.validation_questions(spec, session.store)
                answers = final(evaluation(target, questions, each).run(session))
                right[spec.name, spec.shots] = answers.correct.mean()
            gains[each] = np.mean([right[task, 2] - right[task, 0] for task in tasks])
        assert found.lost(removed).points == pytest.approx(100 * (gains[Mask.full(target.shape)] - gains[mask]))
    assert found.gain == pytest.approx(100 * gains[Mask.full(target.shape)])


def test_the_largest_share_is_measured_first_and_scores_before_it(tiny_opt, tmp_path, session):
    tasks = (str(write_questions(tmp_path / "a.jsonl")),)
    target, setting = target_in(session, tiny_opt, "fp32"), SurveySettings(LoadSpec(), n_questions=4, n_ranking=4)
    settings = MechanismSettings(tasks, 1, (250, 500), ("importance", "induction"), False, 1)
    steps = [step.value for step in mechanisms(target, setting, settings).run(session) if step.value is not None]
    scored = next(each for each in steps if len(each.scores) == 2)
    assert [*scored.scores] == ["importance", "induction"] and not scored.answered
    new = [{*after.answered} - {*before.answered} for before, after in pairwise(steps)]
    assert [each.share for found in new for each in found] == [0, 500, 500, 500, 250, 250, 250]
    assert [*steps[-1].answered] == sets_of_heads(target.shape, settings, steps[-1].scores), "and listed as before"


def test_late_heads_share_the_layers_before_and_answer_as_set_by_set(tiny_opt, tmp_path, session, monkeypatch):
    setting = SurveySettings(LoadSpec(), n_questions=20, n_ranking=4)
    settings = MechanismSettings((str(write_questions(tmp_path / "a.jsonl")),), 2, (100,), ("induction",), n_random=3)
    drawn = [RemovedHeads(RANDOM, 100, draw=draw, heads=(head,)) for draw, head in enumerate((4, 5, 0))]
    sets = [RemovedHeads(FULL), RemovedHeads("induction", 100, heads=(6,)), *drawn]
    monkeypatch.setattr(module, "sets_of_heads", lambda *_: sets)
    shared, plain = [], module.under_each
    monkeypatch.setattr(module, "under_each", lambda *asked: shared.append(asked[2]) or plain(*asked))
    together = final(mechanisms(target_in(session, tiny_opt, "fp32"), setting, settings).run(session))
    assert [[mask.text() for mask in masks] for masks in shared] == [["", "L1H2", "L1H0", "L1H1"]] * 2
    other = Session(Store(tmp_path / "other"))
    monkeypatch.setattr(module, "MOST_S", 0.0)
    single = final(mechanisms(target_in(other, tiny_opt, "fp32"), setting, settings).run(other))
    assert len(shared) == 2 and [*single.answered] == sets
    for removed in sets:
        for task, right in single.answered[removed].items():
            np.testing.assert_array_equal(together.answered[removed][task], right)


def test_a_kind_of_which_all_heads_score_the_same_is_left_out(tiny_opt, tmp_path, session):
    """A random model copies no needle, so no head retrieves."""
    setting = SurveySettings(LoadSpec(), n_questions=4, n_ranking=4)
    settings = MechanismSettings((str(write_questions(tmp_path / "a.jsonl")),), 1, (100,), ("induction", "retrieval"))
    found = final(mechanisms(target_in(session, tiny_opt, "fp32"), setting, settings).run(session))
    assert found.failed == {"retrieval": "all heads score 0, so there is no top; leave this kind out"}
    assert {*found.scores} == {"induction"} and found.is_complete


def test_settings_are_checked():
    refused_by(UsageError, "kind 'magic' is unknown", lambda: MechanismSettings(("task",), kinds=("magic",)))
    refused_by(UsageError, "0 examples", lambda: MechanismSettings(("task",), 0))
    refused_by(UsageError, "no task", lambda: MechanismSettings(()))
