"""Sets of heads that go together: who is in them, and that their numbers are those of their masks measured alone."""

import numpy as np
import pytest

from engine.accuracy.evaluation import evaluation
from engine.heads.induction import induction
from engine.models.masks import parse_mask
from engine.progress import final
from engine.questions.requests import TaskSpec, get_requests, select
from engine.shapes import ModelShape
from engine.studies.removal import DRAWS, HeadSet, head_sets, n_sets, set_answers, set_losses, sizes
from engine.texts.tokenloss import token_losses
from tests.conftest import TEXT
from tests.engine.fixtures import target_in, write_questions

SHAPE = ModelShape(4, 8, 8, 32, 8, 64, 512, 256)


def test_the_best_go_first_and_the_others_are_drawn_from_the_rest():
    scores = np.random.default_rng(3).random((4, 8))
    found = head_sets(scores)
    assert found[0] == HeadSet() and found[0].mask(SHAPE).is_full and len(found) == n_sets(SHAPE) == 1 + 4 * (1 + DRAWS)
    best = sorted(range(32), key=lambda head: -scores.flat[head])
    strongest = {len(each.heads): each.heads for each in found if not each.draw}
    assert strongest == {count: tuple(best[:count]) for count in (0, 1, 2, 4, 8)}
    for draw in range(1, DRAWS + 1):
        mine = [each.heads for each in found if each.draw == draw]
        assert [len(heads) for heads in mine] == [1, 2, 4, 8] and len(set(mine[-1])) == 8
        assert all(small == mine[-1][: len(small)] for small in mine) and not {*mine[-1]} & {*best[:8]}
    assert len({each.heads for each in found if len(each.heads) == 8}) == 1 + DRAWS, "every draw is another"
    assert found == head_sets(scores), "seeded"


@pytest.mark.parametrize("n_heads, expected", [(8, [1, 2]), (32, [1, 2, 4, 8]), (270, [1, 2, 4, 8, 16, 32]), (3, [1])])
def test_a_quarter_of_the_heads_is_the_most_that_goes(n_heads, expected):
    assert sizes(n_heads) == expected


def test_a_set_is_the_mask_of_its_names():
    each = HeadSet((11, 3, 30), 2)
    assert each.names(SHAPE) == "L0H3 L1H3 L3H6" and each.mask(SHAPE) == parse_mask(each.names(SHAPE), SHAPE)


def test_answers_and_losses_are_those_of_the_masks_alone(folder_of, session, tmp_path):
    target = target_in(session, folder_of("opt"), "fp32")
    task = write_questions(tmp_path / "own.jsonl", 8)
    questions = select(get_requests(TaskSpec(str(task)), None, session.store), 8)
    texts = [TEXT[:200], TEXT[200:400]]
    before = set_answers(target, questions).look(session)
    assert before.value == {} and before.left.characters["forward"] > 0 and session.models.loaded is None
    answers, losses = final(set_answers(target, questions).run(session)), final(set_losses(target, texts).run(session))
    scores = final(induction(target, "olsson", 0).run(session)).mean["prefix_matching"]
    assert list(answers) == list(losses) == head_sets(scores)
    for each in answers:
        mask = parse_mask(each.names(target.shape), target.shape)
        alone = final(evaluation(target, questions, mask).run(session))
        np.testing.assert_array_equal(answers[each].correct, alone.correct)
        for text, found in zip(texts, losses[each], strict=True):
            np.testing.assert_array_equal(found, final(token_losses(target, text, mask).run(session)).loss_nats)
