"""Criteria on screen: charts and tables of those compared on Sweeps; on Prune each of them ranks."""

import numpy as np
import pytest

from engine.importance.rankings import CRITERIA
from engine.studies.compare import RANDOM, ComparedCriteria, Comparing, Curve, areas
from pages.ui.page import runtime
from pages.ui.sweeps import criteria_charts, criteria_tables
from tests.conftest import some_of
from tests.pages.conftest import components, experiment_of

LEVELS = (0, 500, 1000)


@pytest.fixture
def found():
    rng = np.random.default_rng(3)
    comparing = Comparing(None, ("wanda", "taylor", "first-token", "reversed"), "heads", LEVELS, 2)
    right = {"wanda": 0.9, "taylor": 0.5, "first-token": 0.1, "reversed": 0.3}
    curves = [Curve(name, 0, rng.random((3, 40)) < share) for name, share in right.items()]
    curves += [Curve(RANDOM, seed, rng.random((3, 40)) < 0.4) for seed in range(2)]
    scores = {"heads": {name: rng.random(8) for name in (*right, RANDOM)}}
    return ComparedCriteria(comparing, tuple(curves), scores, chance=0.25, n=40)


def test_lines_and_band_are_the_accuracies(found):
    frame = criteria_tables.lines(found)
    for curve in found.curves[:4]:
        mine = frame[frame["line"] == criteria_tables.label(curve.criterion)]
        assert mine["acc"].tolist() == curve.correct.mean(1).tolist() and mine["level"].tolist() == [0, 0.5, 1]
        assert (mine["low"] <= mine["acc"]).all() and (mine["acc"] <= mine["high"]).all()
    band = frame[frame["line"] == RANDOM]
    each = np.array([curve.acc for curve in found.random])
    np.testing.assert_allclose(band[["acc", "low", "high"]], np.array([each.mean(0), each.min(0), each.max(0)]).T)
    assert set(frame[frame["line"] == "chance"]["acc"]) == {0.25}


def test_tables_say_what_the_areas_say(found):
    ranked = areas(found)
    frame, words = criteria_tables.area_table(ranked), criteria_tables.area_words(criteria_tables.area_table(ranked))
    assert frame["criterion"].tolist() == [each.criterion for each in ranked] and len(words) == len(ranked) == 5
    first = ranked[0]
    assert words["Mean right"][0] == f"{100 * first.area:.1f}%" and words["Orders beaten"][0] == "2 of 2"
    said = criteria_tables.in_words(ranked, 40, "attention heads")
    assert (
        said.startswith("Wanda keeps most") and "Clearly better than a random order of attention heads: Wanda" in said
    )
    assert "Clearly worse: " in said and "Beyond first token" in said.split("Clearly worse")[1]
    cells = criteria_tables.agreement_cells(found, "heads")
    assert len(cells) == 25 and criteria_tables.agreement_in_words(cells).startswith("Agreeing most: ")
    assert set(cells[cells["a"] == cells["b"]]["number"]) == {"1.00"}
    for picture in (criteria_charts.curves(criteria_tables.lines(found), "heads"), criteria_charts.agreement(cells)):
        assert picture.spec["datasets"] and picture.spec["layer"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", some_of(["wanda", "weight", "first-token"]))
def test_the_map_shows_the_scores_that_the_ranking_goes_by(open_app, name, tiny_opt):
    from engine.importance.importance import importance
    from engine.progress import final
    from engine.questions.requests import TaskSpec, get_requests, select

    at = open_app(prune_heads="40", prune_order=name)
    task = TaskSpec(at.selectbox(key="prune_task").value, split="train")
    train = select(get_requests(task, None, runtime.store()), 64, "stratified")
    target = experiment_of(at).target
    scores = final(importance(target, train, CRITERIA[name].heads).run(runtime.session())).scores.ravel()
    [shown] = [each for each in components(at) if each.get("columns", 0) > 1]
    assert shown["title"] == CRITERIA[name].label
    np.testing.assert_allclose([float(each.replace(",", "")) for each in shown["score"]], scores, rtol=6e-3)
    gone = np.argsort(scores, kind="stable")[:3]
    assert [at for at, pruned in enumerate(shown["pruned"]) if pruned] == sorted(gone.tolist())
    assert any(f"--order {name}" in code.value for code in at.code)
