"""Starting in the middle of the model gives, bit for bit, what a whole pass gives, with fewer layers computed."""

import numpy as np
import pytest

from engine.accuracy.evaluation import evaluation
from engine.accuracy.restarts import common, first_changed, score_each
from engine.accuracy.scoring import score
from engine.importance.scores import importance
from engine.models.in_memory import Models
from engine.models.masks import Mask, parse_mask, single_ablations
from engine.models.slicing import applied, sliced
from engine.questions.encoding import encode_questions
from engine.questions.rendering import TaskSpec, render_questions
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import DISTINCT, finished, in_turns, last, loaded, questions_in, target_in, write_questions

TEXTS = ["", "F0", "F1", "F2", "L1H2", "L0H* F2", "L2H0-2", "L2H* F1", "B0", "B1 L2H0", "B2"]
ON_ONE_BASE = ["B1 B2", "B0-1", "B1 L2H1", "B1"]  # what the first passes of a greedy search share is dropped in all


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    return write_questions(tmp_path_factory.mktemp("task") / "own.jsonl", 20)


@pytest.mark.thorough
@pytest.mark.parametrize("family, precision", in_turns(DISTINCT, ["fp32", "int8", "bf16"]))
def test_every_mask_scores_as_by_itself(family, precision, folder_of, questions):
    model = loaded(folder_of(family), precision)
    rendered = render_questions(TaskSpec(str(questions), 0))
    asked = rendered.questions if IS_THOROUGH else rendered.questions[:4]
    encoded = encode_questions(asked, model.tokenizer, True, 256)
    for texts in (TEXTS, ON_ONE_BASE):
        masks = [parse_mask(text, model.identity.shape) for text in texts]
        for mask, found in zip(masks, finished(score_each(model, encoded, masks)), strict=True):
            with applied(model, sliced(model, mask)):
                expected = finished(score(model, encoded))
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_array_equal(found[1], expected[1])


def test_layers_below_the_change_are_computed_once(folder_of, questions):
    model = loaded(folder_of("opt"))
    encoded = encode_questions(render_questions(TaskSpec(str(questions), 0)).questions[:4], model.tokenizer, True, 256)
    full, masks = Mask.full(model.identity.shape), single_ablations(model.identity.shape, "ffns")
    assert [first_changed(mask, common([full, *masks])) for mask in masks] == [0, 1, 2]
    assert first_changed(full, full) == 3 and common([full, *masks]) == full
    calls = [0, 0, 0]
    layers = model.family.layer_list(model.model)
    hooks = [
        layer.register_forward_hook(lambda m, a, o, at=at: calls.__setitem__(at, calls[at] + 1))
        for at, layer in enumerate(layers)
    ]
    finished(score_each(model, encoded, [full, *masks]))
    for hook in hooks:
        hook.remove()
    n_groups = calls[0] // 2  # the full pass, and the one without the first FFN
    assert n_groups > 0 and calls == [2 * n_groups, 3 * n_groups, 4 * n_groups]
    assert model.family.layer_list(model.model) == layers


def test_stopped_in_the_middle_the_model_is_whole(folder_of, questions):
    model = loaded(folder_of("llama"))
    encoded = encode_questions(render_questions(TaskSpec(str(questions), 0)).questions, model.tokenizer, True, 256)
    before = finished(score(model, encoded))
    steps = score_each(model, encoded, single_ablations(model.identity.shape, "heads"))
    for _ in range(5):
        next(steps)
    np.testing.assert_array_equal(finished(score(model, encoded))[0], before[0])  # also while it pauses
    steps.close()
    np.testing.assert_array_equal(finished(score(model, encoded))[0], before[0])


@pytest.mark.parametrize("what", ["ffns", "heads-oracle"])
def test_oracle_and_evaluation_share_what_they_measure(what, folder_of, questions, session, monkeypatch):
    target = target_in(session, folder_of("opt"))
    about = (session, target, questions_in(questions, session, 18))
    known = single_ablations(target.shape, what)[1]
    list(evaluation(*about[1:], known).run(about[0]))
    steps = importance(*about[1:], what).run(about[0])
    counts = [(step.done, step.total) for step in steps]
    assert all(done <= total for done, total in counts) and counts == sorted(counts)
    monkeypatch.setattr(Models, "get", lambda *_: pytest.fail("the model was loaded"))
    scores = importance(*about[1:], what).stored(about[0])
    assert scores is not None and scores.scores.shape == ((3,) if what == "ffns" else (3, 4))
    for mask in single_ablations(target.shape, what):
        assert last(evaluation(*about[1:], mask).run(about[0])).cached
