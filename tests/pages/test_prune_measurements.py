"""What the Prune screen measures is one value that is read, forecast and measured alike, without a page."""

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from engine.importance import orders
from engine.importance.orders import Pruning, Ranking
from engine.importance.rules import Evidence
from engine.measurement import Workload
from engine.models.masks import Mask, parse_edits
from engine.progress import final
from engine.questions.rendering import TaskSpec, render_questions
from pages.ui.prune import tables
from pages.ui.prune.experiment import LEVELS_PERMILLE, AnswersSoFar, Experiment, accuracies, curve
from tests.engine.fixtures import target_in

NOTHING = Evidence()


@pytest.fixture
def x(session, tiny_opt, questions):
    """Half of the heads pruned at random."""
    target, task = target_in(session, tiny_opt), TaskSpec(str(questions))
    pruning = Pruning(task, Ranking("random", n_questions=4), 500, 0, parse_edits("", target.shape))
    validation, train = (
        render_questions(replace(task, split=split), None, session.store) for split in ("validation", "train")
    )
    return Experiment(target, None, validation, train, 20, pruning)


def test_a_curve_is_read_and_forecast_by_what_is_stored(x, session):
    wanted = curve(x, "heads", NOTHING)
    masks = {level: x.at("heads", level).mask(NOTHING) for level in LEVELS_PERMILLE}
    assert wanted.so_far(session) == {} and wanted.stored(session) is None
    assert wanted.left(session) == sum(map(x.workload, masks.values()), Workload())
    final(x.answers(masks[500]).run(session))
    found = wanted.so_far(session)
    assert [*found] == [level for level, mask in masks.items() if mask == masks[500]] and len(found[500][1]) == 20
    found = final(wanted.run(session))
    assert [*found] == [*LEVELS_PERMILLE] and {level: mask for level, (mask, _) in found.items()} == masks
    assert not wanted.left(session).characters and wanted.stored(session).keys() == found.keys()


def test_a_curve_by_a_ranking_that_is_not_known_takes_that_too(x, session):
    x = replace(x, pruning=replace(x.pruning, ranking=Ranking(n_questions=4)))
    wanted = curve(x, "heads", NOTHING)
    before = wanted.left(session).characters
    assert before["gradient"] > 0 and before["forward"] == 11 * x.workload(None).characters["forward"]
    assert [*final(wanted.run(session))] == [*LEVELS_PERMILLE]
    assert [*wanted.so_far(session)] == [*LEVELS_PERMILLE], "what was known before may be less than what is stored"


def test_a_page_renders_no_train_questions(x, session, monkeypatch):
    x = replace(x, train=None, pruning=replace(x.pruning, ranking=Ranking(n_questions=4)))
    monkeypatch.setattr(orders, "render_questions", lambda *given: pytest.fail("rendered"))
    assert x.known(session) == NOTHING and curve(x, "heads", NOTHING).so_far(session) == {}
    assert not accuracies(x, None).so_far(session).pruned


@pytest.mark.parametrize("second", ["", "other"])
def test_the_pruned_model_comes_first(x, session, second):
    mask = x.mask(NOTHING)
    wanted = accuracies(x, mask, second)
    assert wanted.left(session).characters.keys() == {"forward"}
    steps = [step for step in wanted.run(session) if step.value is not None and not step.is_loading]
    sides = [name for step in steps for name in ("full", "pruned") if getattr(step.value, name)]
    assert (sides[0], {*sides}) == ("pruned", {"full", "pruned"})
    named = ["other, pruned model", "other, full model"] if second else ["pruned model", "full model"]
    assert list(dict.fromkeys(step.message for step in steps if step.message)) == named
    shares = [step.part for step in steps]
    assert shares == sorted(shares) and shares[-1] == 1.0
    found = wanted.stored(session)
    assert found.mask == mask and len(found.full) == len(found.pruned) == 20


def test_where_nothing_is_pruned_the_full_model_answers_once(x, session):
    full = Mask.full(x.shape)
    found = final(accuracies(x, full).run(session))
    assert found == AnswersSoFar(found.full, found.full, full) and found.pruned is found.full


def test_more_than_chance_without_a_head_is_explained_where_it_shows():
    points = pd.DataFrame({"level": [0.0, 1.0], "acc": [0.95, 0.43]})

    def said(level, axis="heads", points=points):
        x = SimpleNamespace(validation=SimpleNamespace(chance=0.25), pruning=SimpleNamespace(level=lambda axis: level))
        return tables.guesses_in_words(x, axis, points)

    assert said(1000) == "With no head left, the model reads no earlier word and guesses 43% right."
    assert said(500) == said(1000, "ffns") == said(1000, points=points[:1]) == ""
    assert said(500, points=points.assign(acc=[0.3, 0.43])), "more than where the curve begins"
