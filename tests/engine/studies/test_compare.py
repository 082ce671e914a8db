"""Criteria compared: curves are those of the masks, areas and intervals those of a plain loop, and nothing is measured
twice."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from engine.accuracy.evaluation import evaluation
from engine.errors import UsageError
from engine.importance.orders import Orders, Ranking
from engine.importance.scores import importance
from engine.progress import final
from engine.studies.compare import BETTER, RANDOM, UNCLEAR, WORSE, ComparedCriteria, Comparing, Curve, areas, comparison
from tests.engine.fixtures import left_when, refused_by
from tests.engine.studies.conftest import no_model

LEVELS = (0, 250, 500, 1000)
CRITERIA = ("importance", "wanda", "taylor", "reversed")


@pytest.fixture
def comparing(tasks):
    return Comparing(tasks[0], CRITERIA, "heads", LEVELS, n_seeds=2)


def compared(session, setting, comparing):
    """The comparison of the setting's model."""
    return comparison(session.target(setting.spec, setting.bos), setting, comparing)


def last(steps) -> ComparedCriteria:
    return list(steps)[-1].value


@pytest.mark.parametrize("axis", ["heads", "ffns", "both"])
def test_curves_are_what_the_masks_of_each_ranking_give(axis, setting, tasks, session, by_hand):
    comparing = Comparing(tasks[0], CRITERIA, axis, LEVELS, n_seeds=2)
    found = last(compared(session, setting, comparing).run(session))
    assert [(curve.criterion, curve.seed) for curve in found.curves] == [
        *((name, 0) for name in CRITERIA), (RANDOM, 0), (RANDOM, 1)
    ]  # fmt: skip
    assert not found.failed
    train = by_hand.asked(replace(tasks[0], split="train"))
    for curve in found.curves[:2]:
        scores = {}
        for each in ("heads", "ffns"):
            what = Ranking(curve.criterion).what(each)
            scores[each] = final(importance(by_hand.target, train, what).run(by_hand.session))
        ties = [np.zeros(s.scores.size) if s.tie_break is None else s.tie_break.ravel() for s in scores.values()]
        orders = [np.lexsort((tie, s.scores.ravel())) for tie, s in zip(ties, scores.values(), strict=True)]
        for level, right in zip(LEVELS, curve.correct, strict=True):
            at = (level if axis != "ffns" else 0, level if axis != "heads" else 0)
            mask = Orders(by_hand.shape, *orders).mask(*at)
            expected = final(evaluation(by_hand.target, by_hand.asked(tasks[0]), mask).run(by_hand.session)).correct
            np.testing.assert_array_equal(right, expected)
    assert (found.curves[0].correct[0] == found.curves[-1].correct[0]).all(), "at nothing pruned all are the full model"


def hand_made(n_seeds=3, n=23):
    """Curves in which one criterion is better than random, one worse and one is random itself."""
    rng = np.random.default_rng(7)
    comparing = Comparing(None, ("importance", "wanda", "taylor"), "heads", LEVELS, n_seeds)
    chances = {"importance": 0.9, "wanda": 0.05, "taylor": 0.5}
    curves = [Curve(name, 0, rng.random((len(LEVELS), n)) < chance) for name, chance in chances.items()]
    curves += [Curve(RANDOM, seed, rng.random((len(LEVELS), n)) < 0.5) for seed in range(n_seeds)]
    return ComparedCriteria(comparing, tuple(curves), n=n)


def test_areas_and_their_intervals_are_those_of_a_plain_loop():
    found, draws = hand_made(), 300
    x = np.array(LEVELS) / 1000
    per_question = {}
    for curve in found.curves:
        key = (curve.criterion, curve.seed)
        per_question[key] = [float(np.trapezoid(curve.correct[:, q].astype(float), x)) for q in range(found.n)]
    names, seeds = ["importance", "wanda", "taylor"], range(3)
    rng, areas_drawn, gains_drawn = np.random.default_rng(0), {name: [] for name in names}, {name: [] for name in names}
    for _ in range(draws):
        questions = rng.integers(0, found.n, found.n)
        taken = rng.integers(0, 3, 3)
        random = sum(sum(per_question[RANDOM, int(s)][q] for q in questions) / found.n for s in taken) / 3
        for name in names:
            area = sum(per_question[name, 0][q] for q in questions) / found.n
            areas_drawn[name].append(area)
            gains_drawn[name].append(area - random)
    by_name = {each.criterion: each for each in areas(found, draws)}
    means = [sum(per_question[RANDOM, seed]) / found.n for seed in seeds]
    for name in names:
        each, mean = by_name[name], sum(per_question[name, 0]) / found.n
        assert each.area == pytest.approx(mean)
        assert each.gain == pytest.approx(mean - sum(means) / 3)
        assert (each.low, each.high) == pytest.approx(tuple(np.percentile(areas_drawn[name], [2.5, 97.5])))
        assert (each.gain_low, each.gain_high) == pytest.approx(tuple(np.percentile(gains_drawn[name], [2.5, 97.5])))
        assert (each.beats, each.n_random) == (sum(random < mean for random in means), 3)
    assert by_name[RANDOM].area == pytest.approx(sum(means) / 3) and by_name[RANDOM].gain == 0
    assert [by_name[name].verdict for name in names] == [BETTER, WORSE, UNCLEAR]
    assert by_name[RANDOM].verdict == "" and [each.area for each in areas(found)] == sorted(
        (each.area for each in areas(found)), reverse=True
    )


def test_no_area_before_every_random_order_is_there():
    found = hand_made()
    assert areas(ComparedCriteria(found.comparing, found.curves[:-1], n=found.n)) == []


def test_agreement_is_spearmans_of_the_scores(setting, comparing, session):
    found = last(compared(session, setting, comparing).run(session))
    agreeing = found.agreement("heads")
    assert agreeing.labels == (*CRITERIA, RANDOM) and found.agreement("ffns") is None
    at = {name: number for number, name in enumerate(agreeing.labels)}
    of = {name: found.scores["heads"][name] for name in agreeing.labels}
    expected = stats.spearmanr(of["wanda"], of["taylor"]).statistic
    assert agreeing.srcc[at["wanda"], at["taylor"]] == pytest.approx(expected)
    assert agreeing.srcc[at["importance"], at["reversed"]] == pytest.approx(-1)


def test_what_is_stored_is_read_and_what_is_left_is_told(setting, comparing, session, monkeypatch):
    before = compared(session, setting, comparing).stored_part(session)
    assert not before.value.curves and {"forward", "gradient", "patterns"} <= {*before.left.characters}
    done = list(compared(session, setting, comparing).run(session))
    assert done[-1].done == done[-1].total and not done[-1].cached
    assert all(a.done <= b.done for a, b in zip(done, done[1:], strict=False))
    monkeypatch.setattr(type(session), "loaded", no_model)
    again = list(compared(session, setting, comparing).run(session))
    read = compared(session, setting, comparing).stored(session)
    assert again[-1].cached and compared(session, setting, comparing).seconds(session) == 0
    for found in (again[-1].value, read):
        for one, other in zip(found.curves, done[-1].value.curves, strict=True):
            np.testing.assert_array_equal(one.correct, other.correct)


def test_a_run_that_is_left_goes_on_where_it_was(setting, comparing, session):
    steps = compared(session, setting, comparing).run(session)
    left_when(steps, lambda step: step.value is not None and len(step.value.curves) == 1)
    kept = compared(session, setting, comparing).stored_part(session)
    assert len(kept.value.curves) == 1 and kept.missing
    assert len(last(compared(session, setting, comparing).run(session)).curves) == len(CRITERIA) + 2


def test_a_criterion_that_cannot_be_measured_is_set_aside_with_the_reason(setting, comparing, session, monkeypatch):
    from engine.errors import HeadroomError

    def broken(target, questions, what, mask=None):
        if "wanda" in what:
            raise HeadroomError("no Wanda today")
        return importance(target, questions, what, mask)

    monkeypatch.setattr("engine.importance.orders.importance", broken)
    found = last(compared(session, setting, comparing).run(session))
    assert found.failed == {"wanda": "no Wanda today"} and len(areas(found)) == len(CRITERIA)


@pytest.mark.parametrize(("change", "why"), [
    ({"criteria": ("magic",)}, "'magic' is unknown"), ({"criteria": ("random",)}, "'random' is unknown"),
    ({"criteria": ()}, "no criterion"), ({"axis": "tails"}, "'tails'"), ({"levels": (500,)}, "two or more levels"),
])  # fmt: skip
def test_what_cannot_be_compared_is_named(change, why, tasks):
    refused_by(UsageError, why, lambda: Comparing(tasks[0], **change))


def test_the_command(setting, tasks, tmp_path, capsys):
    from engine.__main__ import main

    words = ["compare", "--model", setting.spec.model, "--precision", "fp32", "--task", tasks[0].name, "--levels",
             "0,50,100", "--criteria", "wanda,weight", "--random-orders", "2", "--limit", "16",
             "--out", str(tmp_path / "a.csv"), "--cache", str(tmp_path / "store"), "--json"]  # fmt: skip
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert {each["criterion"] for each in found["areas"]} == {"wanda", "weight", "random"} and found["n"] == 16
    assert len(found["rows"]) == 4 * 3 and not found["cached"]
    assert found["rank_agreement"]["heads"]["criteria"] == ["wanda", "weight", "random"]
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 13
    assert main(words) == 0 and json.loads(capsys.readouterr().out)["cached"]
    assert main([*words, "--criteria", "magic"]) == 2 and "'magic' is unknown" in capsys.readouterr().err
