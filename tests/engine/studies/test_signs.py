"""Writers and cancellers: heads by the sign of their score as by single tests, each row recounted from answers, and the
sentence."""

import numpy as np
import pytest
from scipy.stats import false_discovery_control, ttest_1samp

from engine.accuracy.evaluation import evaluation
from engine.heads.function_vectors import FunctionVectorScores
from engine.measurement import known_value
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.progress import final
from engine.questions.rendering import TaskSpec
from engine.studies import signs as module
from engine.studies.mechanisms import FULL, RANDOM, MechanismSettings, RemovedHeads
from engine.studies.signs import clearly_signed, sets_by_sign, signed_heads
from engine.studies.surveys import SurveySettings
from engine.views.mechanisms import signs_view
from engine.views.view import plain_text
from tests.engine.fixtures import target_in, write_questions


def scores_with(means, n=40):
    """Scores whose means are these (L, H), of which the noise has a standard deviation of 1."""
    noise = np.random.default_rng(0).normal(size=(n, *np.shape(means)))
    return FunctionVectorScores(noise - noise.mean(0) + means, np.zeros(n))


MEANS = np.array([[2.0, -1.0, 0.1, 0.0], [-3.0, 0.2, 1.0, -0.1]])


def test_heads_are_signed_as_by_single_tests():
    rise = scores_with(MEANS).rise.reshape(40, 8)
    by_hand = [ttest_1samp(rise[:, head], 0).pvalue for head in range(8)]
    assert np.flatnonzero(clearly_signed(rise)).tolist() == [0, 1, 4, 6]
    assert (clearly_signed(rise) == (false_discovery_control(by_hand) <= 0.05)).all()
    weak = rise * 0.4
    weak[:, ::2] += np.random.default_rng(1).normal(0.1, 1, (40, 4))
    by_hand = [ttest_1samp(weak[:, head], 0).pvalue for head in range(8)]
    assert (clearly_signed(weak) == (false_discovery_control(by_hand) <= 0.05)).all()
    assert not clearly_signed(np.zeros((8, 3))).any(), "scores that are all 0 have no sign"


def test_each_sign_has_random_sets_of_its_size_and_of_other_heads():
    found = sets_by_sign(scores_with(MEANS), MechanismSettings(("task",), shares=(500,), n_random=2))
    heads = {(each.kind, each.draw): each.heads for each in found}
    assert found[0] == RemovedHeads(FULL) and heads["writer", 0] == (0, 6) and heads["canceller", 0] == (4, 1)
    assert {*heads[RANDOM, 0], *heads[RANDOM, 1]} <= {2, 3, 5, 7} and len(found) == 5
    one = sets_by_sign(scores_with(MEANS), MechanismSettings(("task",), shares=(10,), n_random=2))
    assert [each.heads for each in one[1:3]] == [(0,), (4,)] and all(len(each.heads) == 1 for each in one[1:])
    only = sets_by_sign(scores_with(np.abs(MEANS)), MechanismSettings(("task",), shares=(250,), n_random=1))
    assert [each.kind for each in only] == [FULL, "writer", RANDOM]


@pytest.mark.slow("answers questions without six sets of heads")
@pytest.mark.parametrize("family", ["opt", "gpt2"])
def test_rows_are_those_of_single_evaluations(family, folder_of, tmp_path, session, monkeypatch):
    tasks = [str(write_questions(tmp_path / f"{name}.jsonl", seed=seed)) for seed, name in enumerate("ab")]
    target = target_in(session, folder_of(family))
    scores = scores_with(np.vstack([MEANS, np.zeros((1, 4))]))
    monkeypatch.setattr(module, "function_vectors", lambda target: known_value(target, ("known",), scores))
    setting = SurveySettings(LoadSpec(), n_questions=12, n_ranking=8)
    settings = MechanismSettings(tuple(tasks), 2, (200,), n_random=2)
    wanted = signed_heads(target, setting, settings)
    assert wanted.left(session).characters["forward"] > 0
    found = final(wanted.run(session))
    assert wanted.stored(session) is not None and not wanted.left(session).characters
    rows = found.rows(target.shape)
    assert len(rows) == 2 * 4 and {row["task"] for row in rows} == {*tasks}

    def answered(task, heads):
        kept = np.ones(12, bool)
        kept[[*heads]] = False
        mask = Mask.from_arrays(kept.reshape(3, 4), np.ones(3, bool))
        return final(
            evaluation(target, setting.validation_questions(TaskSpec(task, 2), session.store), mask).run(session)
        )

    for row in rows:
        heads = [target.shape.head_names.index(name) for name in row["heads"].split()]
        before, after = answered(row["task"], ()), answered(row["task"], heads)
        rise = after.gold_log_likelihood_nats - before.gold_log_likelihood_nats
        low, high = ttest_1samp(rise, 0).confidence_interval()
        assert (row["nats"], row["low"], row["high"]) == pytest.approx((rise.mean(), low, high))
        assert row["points"] == pytest.approx(100 * (after.correct.mean() - before.correct.mean()))
        if row["kind"] == RANDOM:
            assert row["holds"] is None
            continue
        sign = 1 if row["kind"] == "canceller" else -1
        ends = [sign * low if sign > 0 else -high]
        for other in rows:
            if other["kind"] == RANDOM and other["task"] == row["task"]:
                names = [target.shape.head_names.index(name) for name in other["heads"].split()]
                more = sign * (after.gold_log_likelihood_nats - answered(row["task"], names).gold_log_likelihood_nats)
                ends.append(ttest_1samp(more, 0).confidence_interval().low)
        assert len(ends) == 3 and row["holds"] == all(end > 0 for end in ends)


def row(kind, task, nats, holds):
    more = {"points": 0.0, "points_low": -5.0, "points_high": 5.0, "p": 1.0, "n": 48, "draw": 0, "heads": "L0H0 L1H0"}
    return {"kind": kind, "task": task, "n_heads": 2, "nats": nats, "low": nats - 0.1, "high": nats + 0.1} | more | {
        "holds": holds
    }  # fmt: skip


def test_the_view_says_on_which_tasks_the_prediction_holds():
    rows = [row("writer", "a", -0.5, True), row("writer", "b", -0.4, True), row("canceller", "a", 0.2, True),
            row("canceller", "b", 0.05, False), row(RANDOM, "a", 0.0, None)]  # fmt: skip
    view = signs_view(rows)
    assert plain_text(view.finding) == (
        "That the right choice is likelier without the 2 cancellers holds on a: a +0.20 nats (95% +0.10 to +0.30), "
        "b +0.05 nats (95% −0.05 to +0.15). That the right choice is less likely without the 2 writers holds on a and "
        "b: a −0.50 nats (95% −0.60 to −0.40), b −0.40 nats (95% −0.50 to −0.30)."
    )
    assert [each["set"] for each in view.parts[0].rows][-1] == "a: 2 random heads"
    none = plain_text(signs_view(rows[:2]).finding)
    assert none.startswith("There are no cancellers: no function-vector score is clearly below 0.")
    assert "does not hold: a" in plain_text(signs_view([row("canceller", "a", 0.01, False)]).finding)
