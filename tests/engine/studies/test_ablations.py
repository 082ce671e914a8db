"""Heads alone and together, recounted from the answers without each."""

import numpy as np
import pytest

from engine.accuracy.evaluation import evaluation
from engine.heads.induction import induction
from engine.importance.scores import importance
from engine.models.masks import Mask
from engine.progress import final
from engine.questions.rendering import TaskSpec, render_questions, select
from engine.statistics import paired
from engine.studies import ablations as module
from engine.studies.ablations import ablations, costs_by_task
from engine.studies.removal import AccuracyWithout, Removal, without, without_heads
from engine.studies.surveys import SurveySettings
from engine.views.accuracy import ablation_view
from engine.views.view import plain_text
from tests.engine.fixtures import target_in, write_questions

N = 8


@pytest.fixture
def asked(session, tiny_opt, tmp_path):
    """(the model, the task, its questions)."""
    task = TaskSpec(str(write_questions(tmp_path / "a.jsonl")), split="train")
    return target_in(session, tiny_opt), task, select(render_questions(task, None, session.store), N, "stratified")


@pytest.mark.parametrize("score", ["heads-oracle", "heads-one-divisor"])
def test_each_head_alone_and_the_induction_heads_together(score, session, asked, monkeypatch):
    target, task, questions = asked
    heads = (5, 2)
    found_heads = induction(target).map(lambda scores: Removal(heads))
    monkeypatch.setattr(module, "found_heads", lambda target: found_heads)
    wanted = ablations(target, task, score, 3, N)
    assert wanted.so_far(session) is None and wanted.left(session)
    found = final(wanted.run(session))
    best = np.argsort(importance(target, questions, score).stored(session).scores, axis=None)[::-1]
    if score != "heads-oracle":  # an oracle's ties go by the log-likelihood
        assert found.costliest == tuple(best[:3])
    assert len(found.costliest) == 3 and {*found.alone} == {*found.costliest, *heads} and found.n == N

    def answers(*gone):
        return final(evaluation(target, questions, without(target.shape, gone)).run(session))

    full = answers()
    for head, change in found.alone.items():
        assert change == paired(full.correct, answers(head).correct)
    assert found.together == without_heads(target, task, heads, N).stored(session)
    assert found.together.removed.change == paired(full.correct, answers(*heads).correct)
    assert wanted.stored(session).alone == found.alone
    view = ablation_view(found, "a task", "")
    assert view.finding.startswith("On a task, ") and len(view.parts[0].rows) >= 4


def test_the_costs_of_one_head_by_task(session, asked):
    target, task, questions = asked
    setting = SurveySettings(target.spec, n_ranking=N)
    found = final(costs_by_task(target, setting, [task], (1, 2)).run(session))
    full, gone = (final(evaluation(target, questions, mask).run(session)) for mask in (
        Mask.full(target.shape), without(target.shape, (6,))))  # fmt: skip
    assert found == {task: paired(full.correct, gone.correct)}


@pytest.mark.parametrize(
    "costs, together, says",
    [
        ({0: -33, 4: 0, 5: -1}, -40, "L0H0 alone costs 52 points; the 2 induction heads cost 62 points only together"),
        (
            {0: 0, 4: -33, 5: -30},
            -40,
            "L1H0 alone costs most, 52 points; the 2 induction heads cost 62 points together (random ones: 0), L1H0",
        ),
        ({0: 0, 4: 0, 5: -1}, -1, "no head matters alone; the 2 induction heads cost nothing clear, not even together"),
    ],
)
def test_the_finding_says_what_is_clear(costs, together, says, asked):
    shape, full = asked[0].shape, np.ones(64, bool)

    def change(lost):
        return paired(full, np.arange(64) >= -lost)

    of = Removal((4, 5), line(full, together), tuple(line(full, 0) for _ in range(5)))
    alone = {head: change(lost) for head, lost in costs.items()}
    clear = frozenset(head for head, lost in costs.items() if lost < -10)
    view = ablation_view(module.Ablations(shape, 64, (0,), of, alone, clear), "demo_x, 5 shots", "")
    assert says in plain_text(view.finding)


def line(full, lost):
    right = np.arange(64) >= -lost
    return AccuracyWithout(1.0, float(right.mean()), paired(full, right))
