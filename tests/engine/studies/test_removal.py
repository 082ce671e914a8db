"""The induction heads removed at once: found by a rule from the scores, beside as many others, each line recounted."""

import numpy as np
import pytest

from engine.accuracy.evaluation import evaluation
from engine.heads.induction import InductionScores, induction
from engine.importance.scores import importance
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.progress import final
from engine.questions.rendering import TaskSpec, render_questions, select
from engine.shapes import ModelShape
from engine.statistics import paired
from engine.studies import removal as module
from engine.studies.removal import (
    AccuracyWithout,
    Removal,
    induction_heads,
    random_heads_mask,
    removal,
    without,
    without_heads,
)
from tests.engine.fixtures import target_in, write_questions

SHAPE = ModelShape(4, 8, 8, 32, 4, 64, 512, 256)


def scores_of(matching, copying):
    return InductionScores({"prefix_matching": matching, "copying": copying}, {}, {})


def test_heads_count_that_match_prefixes_and_copy():
    matching, copying = np.full((4, 8), 0.03), np.full((4, 8), -0.5)
    matching[1, :5], copying[1, 2] = (0.91, 0.93, 0.9, 0.29, 0.31), 4 * 0.03 - 1
    assert induction_heads(scores_of(matching, copying)) == (9, 8, 12), "L1H2 copies no more than chance"
    assert induction_heads(scores_of(matching / 4, copying)) == (), "a model without such heads has none"
    assert induction_heads(scores_of(np.full((2, 2), np.nan), np.zeros((2, 2)))) == ()


@pytest.mark.parametrize("heads", [(8, 9, 11, 12), tuple(range(20))])
def test_draws_are_others_as_many_and_reproducible(heads):
    masks = [random_heads_mask(SHAPE, heads, seed) for seed in range(module.N_DRAWS)]
    gone = [set(np.flatnonzero(~np.array(mask.heads).ravel())) for mask in masks]
    assert all(not each & set(heads) and len(each) == min(len(heads), 32 - len(heads)) for each in gone)
    assert masks == [random_heads_mask(SHAPE, heads, seed) for seed in range(module.N_DRAWS)]


def line(n, lost):
    right = np.ones(n, bool)
    pruned = right.copy()
    pruned[:lost] = False
    return AccuracyWithout(1.0, float(pruned.mean()), paired(right, pruned))


@pytest.mark.parametrize(
    "lost, drawn, holds", [(50, [0, 0, 2, 0, 40], True), (50, [30] * 5, False), (2, [0] * 5, False), (50, [], False)]
)
def test_a_story_holds_where_the_loss_is_clear_and_twice_that_of_the_draws(lost, drawn, holds):
    found = Removal((0,), line(100, lost), tuple(line(100, each) for each in drawn))
    assert found.holds is holds


def test_the_story_holds_on_the_embedded_model(session):
    """Whichever they are: at least three heads match prefixes, and without them only what needs examples is lost."""
    target = session.target(LoadSpec("demo", "int8"))
    found, control = (
        final(removal(target, task, 48).run(session))
        for task in (TaskSpec("demo_outfit", 5), TaskSpec("demo_question"))
    )
    matching = final(induction(target).run(session)).mean["prefix_matching"]
    assert len(found.heads) >= 3 and (matching > 0.5).sum() >= 3
    assert set(found.heads) == set(np.flatnonzero(matching.ravel() >= 0.3)), "all of them copy"
    assert found.removed is not None and control.removed is not None
    assert found.removed.points <= -40 and abs(control.removed.points) <= 5
    assert found.at_random[0] >= -10 and found.holds


def test_every_line_is_the_difference_of_two_counts(session, tiny_opt, tmp_path, monkeypatch):
    monkeypatch.setattr("engine.heads.induction.INDUCTION_FROM", 0.0)  # a random model has no induction heads
    target, task = target_in(session, tiny_opt), TaskSpec(str(write_questions(tmp_path / "own.jsonl", 24)))
    found = final(removal(target, task, 20).run(session))
    scores = final(induction(target, "olsson", 0).run(session))
    assert found.heads == induction_heads(scores) and found.heads
    questions = select(render_questions(task, None, session.store), 20, "stratified")

    def right(mask, n):
        answers = final(evaluation(target, questions, mask).run(session))
        return sum(int(np.nanargmax(row) in one.golds) for one, row in
                   list(zip(answers.questions, answers.log_likelihood_nats, strict=True))[:n])  # fmt: skip

    full, gone = Mask.full(target.shape), without(target.shape, found.heads)
    assert found.removed is not None
    assert found.removed.pruned == right(gone, 20) / 20 and found.removed.full == right(full, 20) / 20
    assert len(found.draws) == module.N_DRAWS
    for seed, drawn in enumerate(found.draws):
        assert drawn.pruned == right(random_heads_mask(target.shape, found.heads, seed), 20) / 20
        assert drawn.full == found.removed.full, "one baseline"


def test_heads_removed_one_by_one_lose_what_the_oracle_says(session, tiny_opt):
    target, task = session.target(LoadSpec(str(tiny_opt), "fp32")), TaskSpec("demo_copy", 0, "train")
    questions = select(render_questions(task, None, session.store), 16, "stratified")
    by_oracle = 100 * final(importance(target, questions, "heads-oracle").run(session)).scores.ravel()
    right = {
        gone: final(evaluation(target, questions, without(target.shape, gone)).run(session)).correct.mean()
        for gone in ((), (5,), (0,), (3,))
    }
    assert [100 * (right[()] - right[head,]) for head in (5, 0, 3)] == pytest.approx(by_oracle[[5, 0, 3]])
    together = final(without_heads(target, task, (5, 0, 3), 16).run(session))
    assert together.removed.full == right[()] and len(together.draws) == module.N_DRAWS
