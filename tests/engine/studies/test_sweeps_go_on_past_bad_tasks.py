"""A task that cannot be measured is named in one plain line; every other row of the sweep is there."""

from dataclasses import replace

import numpy as np
import pytest

from engine.accuracy.evaluation import evaluation
from engine.importance.orders import OF_MANY_TASKS
from engine.models.loading import LoadSpec
from engine.models.masks import parse_mask
from engine.models.session import Session
from engine.questions.rendering import TaskSpec
from engine.studies.surveys import SurveySettings, agreement_rows, survey
from engine.studies.sweeps import points
from tests.conftest import make_tiny_opt
from tests.engine.fixtures import write_questions
from tests.engine.studies.conftest import SIZES, N, last, one_plain_line, swept, without_columns


@pytest.fixture
def broken(tasks, tmp_path):
    """Tasks that cannot be measured, by what is wrong with them."""
    short = write_questions(tmp_path / "short.jsonl", 3)
    malformed = tmp_path / "malformed.jsonl"
    malformed.write_text('{"context": "a", "choices": ["b", "c"], "gold": 7}\n')
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    return {
        "missing": str(tmp_path / "nowhere.jsonl"),
        "malformed": str(malformed),
        "empty": str(empty),
        "short": str(short),
    }


@pytest.mark.parametrize("what", ["missing", "malformed", "empty", "short"])
def test_a_task_without_usable_rows_is_set_aside_and_the_others_go_on(what, setting, tasks, session, broken):
    bad = TaskSpec(broken[what], 5 if what == "short" else 0)
    good = replace(tasks[1], shots=bad.shots)
    names, rankings = [bad.name, good.name], ("own", "aggregate", "random", "rescored")
    wanted, wanted_alone = (
        [point for by in rankings for point in points(each, [0, 500], [0, 500], by)] for each in ([bad, good], [good])
    )
    found = swept(session, setting, wanted, names)
    alone = swept(session, setting, wanted_alone, names[1:])
    assert found.rows == alone.rows and [row.point for row in alone.rows] == wanted_alone
    assert set(found.failed) == {bad} and one_plain_line(found.failed[bad])


def test_a_harness_task_whose_folder_lacks_a_split_is_set_aside(setting, tasks, session, tmp_path):
    (tmp_path / "data" / "copa").mkdir(parents=True)
    setting = replace(setting, data_dir=str(tmp_path / "data"))
    found = swept(session, setting, points([TaskSpec("copa"), tasks[0]], [0, 500], [0]), ())
    assert len(found.rows) == 2 and list(found.failed) == [TaskSpec("copa")]
    assert one_plain_line(found.failed[TaskSpec("copa")]) and "copa" in found.failed[TaskSpec("copa")]


def test_three_rows_are_enough_where_no_example_is_drawn(setting, tasks, session, store, broken, by_hand):
    task = TaskSpec(broken["short"])
    found = swept(session, setting, points([task, tasks[0]], [0, 500], [0]), ())
    assert not found.failed and [row.n for row in found.rows] == [3, 3, N, N]
    for row in found.rows:
        by_hand.check(row, by_hand.mask(row.point, ()), store)


def test_a_source_that_cannot_be_measured_is_named_and_the_other_rankings_go_on(setting, tasks, pool, session, broken):
    wanted = [*points(tasks[:1], [0, 500], [0], "task", of=broken["missing"]), *points(tasks[:1], [500], [0])]
    found = swept(session, setting, wanted, pool)
    assert [row.point for row in found.rows] == [wanted[0], wanted[2]], "without pruning no ranking is needed"
    assert list(found.failed) == [TaskSpec(broken["missing"])]


@pytest.mark.parametrize("by, names", [("others", 1), ("others", 0), ("aggregate", 0)])
def test_an_aggregate_of_no_task_is_said_to_be_one(by, names, setting, tasks, pool, session):
    """Whatever is wanted has a row, or a reason why not."""
    found = swept(session, setting, points(tasks[:1], [500], [0], by), pool[:names])
    assert found.rows or one_plain_line(" ".join(found.failed.values()))


def test_a_model_with_one_layer(tasks, pool, store, tmp_path):
    (folder := tmp_path / "one").mkdir()
    setting = SurveySettings(LoadSpec(str(make_tiny_opt(folder, n_layers=1)), "fp32"), bos=True)
    wanted = [
        point
        for by in OF_MANY_TASKS
        for point in points(tasks[1:], [0, 500, 1000], [0, 500, 1000], by, of=pool[0] if by == "task" else "")
    ]
    found = swept(Session(store), setting, wanted, pool)
    assert [row.point for row in found.rows] == wanted and not found.failed
    for row in found.rows:
        assert row.n_heads_pruned == row.point.heads_permille * 4 // 1000
        assert row.n_ffns_pruned == row.point.ffns_permille // 1000


def test_all_equal_scores(tasks, pool, store, tmp_path, by_hand):
    """A model whose heads and FFNs add nothing: every score is 0, and what goes first is decided by position."""
    nothing = parse_mask("L*H* F*", by_hand.shape)
    folder = without_columns(by_hand.folder, nothing, tmp_path / "nothing")
    setting, session = SurveySettings(LoadSpec(str(folder), "fp32"), bos=True), Session(store)
    wanted = [
        point
        for by in OF_MANY_TASKS
        for point in points(tasks[1:], [0, 700], [0, 500], by, of=pool[0] if by == "task" else "")
    ]
    found = swept(session, setting, wanted, pool)
    assert [row.point for row in found.rows] == wanted and not found.failed
    assert {(row.gained, row.lost, row.p_mcnemar) for row in found.rows} == {(0, 0, 1.0)}
    for what in ("heads", "ffns"):
        surveyed = last(survey(session.target(setting.spec, setting.bos), setting, tasks[1:], what).run(session))
        assert all((scores.scores == 0).all() for scores in surveyed.scores.values())
    assert all(np.isnan(row["srcc"]) for row in agreement_rows(surveyed, "scores"))
    about = (session, session.target(setting.spec, setting.bos), setting.validation_questions(tasks[1], store))
    assert len(evaluation(*about[1:], parse_mask("L0H* L1H0-2 F0", by_hand.shape)).so_far(about[0])) == SIZES[1]
