"""The Importance screen in one process: what is drawn are the engine's numbers, with their sign, and what is missing
is measured once."""

import io
import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from engine.importance.importance import Scores, importance
from engine.importance.rankings import AGGREGATES, aggregate, agreement, order
from engine.models.loading import LoadSpec
from engine.models.session import Session
from engine.questions.requests import TaskSpec, get_requests, select
from engine.questions.tasks import TaskInfo, TaskStatus
from engine.statistics import Paired, paired
from engine.studies.removal import AccuracyWithout, Removal
from engine.studies.surveys import StudySettings, Survey, grid, together
from engine.views import pictures
from pages.ui.controls import many_tasks
from pages.ui.importance import charts as drawn
from pages.ui.importance import sections, tables
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.page.tables import number
from pages.ui.page.work import Work
from tests.conftest import make_tiny_opt
from tests.pages.conftest import (
    frames_of,
    labels,
    press,
    printed_by_the_program,
    said,
    same_on_the_command_line,
    settled,
)

NAMES = ("demo_sort", "demo_copy")  # as the catalogue orders them


@pytest.fixture
def open_screen(open_app, only_tasks, monkeypatch):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")  # nothing is measured before a button is clicked
    only_tasks(*NAMES)
    return partial(open_app, "importance", importance_shots="0")


def measure(at, *kinds):
    for kind in kinds:
        at.button(key=f"measure importance {kind}").click()
        settled(at)
    return at


def drawn_tables(at):
    """The frames of the two large charts, by name: maps, ffns."""
    return dict(zip(("maps", "ffns"), frames_of(at), strict=False))


def by_engine(tiny_opt, store, name, what):
    """Measured once more, without the page and in another store."""
    requests = get_requests(TaskSpec(name, 0, "train"), None, store)
    session, questions = Session(store), select(requests, RANKING_QUESTIONS, "stratified")
    steps = importance(session.target(LoadSpec(str(tiny_opt), "fp32")), questions, what).run(session)
    return [step.value for step in steps][-1]


def test_what_is_missing_is_measured_drawn_kept_and_found_by_the_command_and_the_program(
    open_screen, tiny_opt, store, tmp_path, capsys
):
    at = open_screen()
    assert not drawn_tables(at)
    assert at.button(key="measure importance heads").label.startswith("Measure importance of heads")
    measure(at, "heads", "ffns")
    for page in (at, open_screen()):  # and a new session finds what is stored
        assert "of 2 measured" not in said(page)
        assert not [label for label in labels(page) if label.startswith("Measure")]
        found = drawn_tables(page)
        for place, name in enumerate(NAMES):
            expected = by_engine(tiny_opt, store, name, "heads-one-divisor").scores
            cells = found["maps"]["heads"].query("map == @place")
            assert found["maps"]["maps"]["task"].tolist()[place] == name
            np.testing.assert_allclose(cells["score"].to_numpy().reshape(2, 4), expected, rtol=1e-5)
            ffns = found["ffns"]["ffns"].query("task == @name")
            np.testing.assert_allclose(ffns["score"], by_engine(tiny_opt, store, name, "ffns").scores, atol=1e-12)
        assert found["ffns"]["ffns"]["score"].min() < -0.05, "removal helps this model, and the sign is kept"
        both = found["maps"]["heads"]["score"].to_numpy().reshape(2, 2, 4)
        shares = sum(one / sum(abs(value) for value in one.ravel()) for one in both) / 2
        best = page.dataframe[0].value
        layer, head = np.unravel_index(np.argsort(-shares, axis=None), shares.shape)
        assert best["name"].tolist() == [f"L{of}H{at}" for of, at in zip(layer, head, strict=True)]
        every = found["maps"]["heads"].set_index(["map", "layer", "head"])["rank"]
        for place, name in enumerate(NAMES):
            assert best[f"{name}, 0 shots"].tolist() == [every[place, *of] for of in zip(layer, head, strict=True)]
    assert same_on_the_command_line(at, capsys, out=tmp_path / "heads.csv")["cached"]
    np.testing.assert_allclose(both[0].ravel(), pd.read_csv(tmp_path / "heads.csv")["score"], rtol=1e-6)
    [highest] = [line for line in printed_by_the_program(at).splitlines() if "score highest on average" in line]
    best = re.findall(r"L\d+H\d+", highest)
    assert len(best) > 3 and best == at.dataframe[0].value["name"].head(len(best)).to_list()


def test_gradients_and_oracle_agree_as_the_engine_says(open_screen, tiny_opt, store):
    one = {"importance_tasks": "demo_copy"}
    at = measure(open_screen(**one), "heads")
    press(at, "Compare with measured losses")
    three = {what: by_engine(tiny_opt, store, "demo_copy", what).scores for what in drawn.TITLES}
    rho = spearmanr(three["heads-one-divisor"].ravel(), three["heads-oracle"].ravel()).statistic
    assert f"rank correlation **{number(rho, sign=True)}**" in said(at)
    points = tables.agreement_rows(three, "heads-one-divisor")
    np.testing.assert_allclose(points["oracle_points"], 100 * three["heads-oracle"].ravel(), atol=1e-9)
    assert spearmanr(points["rank"], points["oracle_rank"]).statistic == pytest.approx(rho)
    assert "8 of 8 heads show no clear loss" in said(at)
    assert "Compare with measured losses" not in labels(open_screen(**one))


def test_a_task_without_its_data_is_one_plain_line(open_screen, monkeypatch, tmp_path):
    folder = tmp_path / "data" / "copa"
    folder.mkdir(parents=True)
    for split in ("train", "validation"):
        (folder / f"{split}.jsonl").write_text('{"premise": "It rained."}\n')
    here = many_tasks.list_tasks
    info = TaskInfo("copa", "COPA", "", 0.5, "", ())
    monkeypatch.setattr(many_tasks, "list_tasks", lambda at: [*here(at), TaskStatus(info, "folder", True, "")])
    at = measure(open_screen(data_dir=str(tmp_path / "data")), "heads")
    [line] = [warning.value for warning in at.warning]
    assert "copa" in line and "row 1" in line and "\n" not in line
    assert drawn_tables(at)["maps"]["maps"]["task"].tolist() == list(NAMES), "the others are drawn"
    label = at.button(key="measure importance heads").label
    assert label == "Measure 1 missing score", "once the file is corrected; what that takes is not known"


def test_a_model_with_many_heads_is_not_offered_the_oracle(open_screen, tmp_path, monkeypatch):
    for of in (tables, sections):
        monkeypatch.setattr(of, "ORACLE_HEADS", 20)
    folder = tmp_path / "many"
    folder.mkdir()
    at = open_screen(model=str(make_tiny_opt(folder, 3, 8, 32)), importance_what="Measured")
    assert any("24 heads are too many" in info.value for info in at.info)
    assert not {"Compare with measured losses", "Measure heads"} & {*labels(at)}
    at.segmented_control(key="importance_what").set_value(tables.EVEN)
    measure(settled(at), "heads")
    best = at.dataframe[0].value["name"].tolist()
    press(at, "Remove the top 10 heads")
    [rows] = [tables["rows"] for tables in frames_of(at) if "rows" in tables]
    alone = [f"{name} alone" for name in best]
    assert rows["row"].tolist() == [*alone, "all 10 heads together", "10 random heads, range of 5 draws"]
    assert "the top 10 heads together cost" in said(at)


def scores(*arrays, what="heads"):
    """Scores of one task after another, all at 0 shots; of accuracies, of 64 questions either gained or lost."""
    found = {TaskSpec(f"task{i}", 0): Scores(what, 64, np.array(array, float)) for i, array in enumerate(arrays)}
    if what == "heads":
        return found
    flips = {task: np.round(64 * np.maximum([-one.scores, one.scores], 0)).astype(int) for task, one in found.items()}
    return {task: replace(one, flips=flips[task]) for task, one in found.items()}


def mean_of(found, how="scores"):
    return together(StudySettings(LoadSpec("demo"), aggregate=how), found)


def ffn_mean(found):
    return tables.ffn_mean(StudySettings(LoadSpec("demo")), found)


def encodings(chart, channel):
    return [layer["encoding"][channel] for layer in chart.spec["layer"] if channel in layer["encoding"]]


def test_rank_1_is_the_most_important_which_pruning_takes_last():
    found = {TaskSpec("a", 0): Scores("heads-oracle", 4, np.zeros((2, 2)), np.array([[3.0, 1.0], [2.0, 0.0]]))}
    rows = tables.head_rows(found)
    assert rows["rank"].tolist() == [1, 3, 2, 4], "equal scores go by their tie break"
    assert rows.columns.tolist() == ["task", "shots", "layer", "head", "name", "score", "rank"]
    assert rows["name"].tolist() == ["L0H0", "L0H1", "L1H0", "L1H1"]


@pytest.mark.parametrize("how", AGGREGATES)
def test_the_mean_is_the_engines_and_counts_who_keeps_a_head(how):
    rng = np.random.default_rng(0)
    found = scores(*rng.random((3, 2, 5)))
    rows = tables.aggregate_rows(found, mean_of(found, how))
    expected = aggregate({task.name: one.scores for task, one in found.items()}, how)
    np.testing.assert_allclose(rows["score"], expected.ravel())
    np.testing.assert_array_equal(rows.sort_values("rank").index, order(expected)[::-1])
    kept = sum(np.isin(np.arange(10), order(one.scores)[-3:]).astype(int) for one in found.values())
    assert rows["kept"].tolist() == kept.tolist() and rows["kept"].sum() == 9


def test_colours_are_shares_of_the_tasks_total_on_one_scale():
    chart = drawn.score_maps(tables.head_rows(scores([[0.1, 0.4]], [[2.0, 6.0]])), "Gradient")
    assert encodings(chart, "color")[0]["scale"] == {"type": "sqrt", "domain": [0, 0.8]}
    assert [one["total"] for one in chart.datasets["maps"]] == [0.5, 8.0]


def test_negative_head_scores_have_a_scale_around_zero():
    rows = tables.head_rows(scores([[0.5, -0.0625]], what="heads-oracle"))
    chart = drawn.score_maps(rows, "Oracle")
    colour, *_ = encodings(chart, "color")
    assert colour["scale"] == {"domain": [-100, 100], "domainMid": 0, "interpolate": "rgb", "type": "sqrt"}, "in points"
    mean = tables.aggregate_rows(found := scores([[0.5, -0.0625]], what="heads-oracle"), next(iter(found.values())))
    assert tables.values_in_words(found, mean.iloc[0], True) == ":small[task0 50 points lost alone]"
    assert [cell["is_clear"] for cell in chart.datasets["heads"]] == [True, False]


def test_ffns_keep_their_sign_in_numbers_and_words():
    found = scores([0.25, -0.015625], [0.0, 0.125], what="ffns")
    rows, mean = tables.ffn_rows(found), ffn_mean(found)
    chart = drawn.ffn_map(rows, mean)
    cells = pd.DataFrame(chart.datasets["ffns"])
    assert cells.query("task == 'task0'")["number"].tolist() == ["25", "−2"]
    assert cells.query("task == 'task1'")["number"].tolist() == ["0", "12"]
    assert cells["row"].tolist()[-2:] == [drawn.MEAN] * 2, "below the tasks"
    assert cells.query("task == 'mean'")["points"].tolist() == [12.5, pytest.approx(5.46875)]
    colour, *_ = encodings(chart, "color")
    heads = encodings(drawn.score_maps(tables.head_rows(scores([[0.5]], what="heads-oracle")), "Oracle"), "color")
    assert colour["scale"] == heads[0]["scale"], "one scale for heads and FFNs"
    assert "2 of 4 cells" in tables.ffns_in_words(rows)
    words = tables.top_ffn_in_words(mean, "in the mean over 2 tasks")
    assert words == "In the mean over 2 tasks, **F0** costs most: **12 points**."
    words = tables.top_ffn_in_words(ffn_mean(scores([0.03, 0.0], what="ffns")), "on task0")
    assert words.startswith("No FFN clearly costs accuracy")


def test_what_heads_cost_alone_and_together_is_one_picture():
    found = scores([[0.5, 0.03, -0.03], [0.0, 0.0, 0.25]], what="heads-oracle")
    [task], rows, mean = found, tables.head_rows(found), tables.aggregate_rows(found, mean_of(found))
    lost, drawn_at_random = (
        AccuracyWithout(0.9, at, Paired(100, 0, n, p)) for at, n, p in ((0.3, 60, 0), (0.88, 2, 1))
    )
    joint = Removal((1, 4), removed=lost, draws=(drawn_at_random,))
    assert tables.costs_only_together(mean, rows, joint)
    assert not tables.costs_only_together(mean, rows, replace(joint, heads=(0, 1))), "L0H0 costs alone"
    assert not tables.costs_only_together(mean, rows, replace(joint, removed=drawn_at_random)), "no clear loss"
    words = "The 2 induction heads cost nothing clear alone, but **60 points** together on task0."
    assert tables.joint_in_words(joint, task.name) == words
    sets = tables.joint_rows(found[task], rows, joint)
    alone = ["L0H0 alone", "L1H2 alone", "induction head L0H1 alone", "induction head L1H1 alone"]
    assert sets["row"].tolist() == [*alone, "all 2 induction heads together", "2 random heads, range of 1 draw"]
    assert sets["lost"].tolist() == pytest.approx([50, 25, 100 * 2 / 64, 0, 60, 2])
    assert sets["is_clear"].tolist() == [True, True, False, False, True, False]
    low, high = (100 * end for end in Paired(64, 0, 32, 0.0).interval)
    assert sets.loc[0, ["low", "high"]].tolist() == pytest.approx([-high, -low])


def test_heads_removed_one_by_one_are_told_apart_by_what_is_clear():
    def removed(*lost):
        lines = [
            AccuracyWithout(0.9, 0.9 - n / 100, paired(np.arange(100) < 90, np.arange(100) < 90 - n)) for n in lost
        ]
        return Removal((4, 1, 2), removed=lines[0], draws=(lines[1],), alone=tuple(lines[2:]))

    rows = tables.removed_rows(removed(60, 2, 5, 30, 6), ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1"])
    alone = ["L1H1 alone", "L0H1 alone", "L0H2 alone"]
    assert rows["row"].tolist() == [*alone, "all 3 heads together", "3 random heads, range of 1 draw"]
    assert rows["lost"].tolist() == pytest.approx([5, 30, 6, 60, 2])
    assert rows["is_clear"].tolist() == [False, True, False, True, False], "L0H2 is clear by itself, not among three"
    words = "On a, the top 3 heads together cost **60 points**, 3 random heads 2."
    assert tables.removed_in_words(rows, 3, "a") == words
    part = replace(removed(60, 2, 5, 30, 6), removed=None, draws=(), alone=())
    assert tables.removed_rows(part, []).empty


def test_the_mean_over_tasks_is_one_map_that_says_each_heads_loss_by_task():
    found = scores([[0.5, 0.03], [0.0, 0.25]], [[0.25, -0.015625], [0.0, 0.25]], what="heads-oracle")
    chart = drawn.score_maps(tables.mean_rows(found, tables.aggregate_rows(found, mean_of(found))), "Lost", (3,))
    assert [one["title"] for one in chart.datasets["maps"]] == ["Mean of 2 tasks, 0 shots"]
    cells = pd.DataFrame(chart.datasets["heads"])
    assert cells["score"].tolist() == pytest.approx([0.375, 0.0071875, 0, 0.25])
    assert cells["each"].tolist()[:2] == ["task0 50.0, task1 25.0", "task0 3.0, task1 −1.6"]


@pytest.mark.parametrize("shape, n_shown", [((4, 8), 54), ((12, 12), 54), ((24, 16), 39), ((72, 64), 3), ((90, 96), 1)])
def test_the_number_of_cells_is_bounded(shape, n_shown):
    tasks = grid([f"task{i}" for i in range(18)], [0, 1, 5])
    shown = tables.shown_maps(tasks, shape[0] * shape[1])
    assert len(shown) == n_shown
    assert len(shown) * shape[0] * shape[1] <= max(tables.MAX_MARKS, shape[0] * shape[1])
    assert shown == tasks[:n_shown]


def test_all_equal_scores_are_drawn_and_their_agreement_is_undefined():
    rows = tables.head_rows(scores(np.zeros((2, 2))))
    assert pictures.to_svg(drawn.score_maps(rows, "Gradient"), "x").startswith(b"<svg")
    same = {"heads": np.ones((2, 2)), "heads-oracle": np.arange(4.0).reshape(2, 2)}
    assert "undefined" in tables.agreement_in_words(agreement(same), "heads", "heads-oracle")


def test_every_chart_becomes_a_file():
    rng = np.random.default_rng(2)
    found = scores(rng.random((2, 4)))
    ffns = scores(rng.normal(size=2) / 9, rng.normal(size=2) / 9, what="ffns")
    made = [drawn.score_maps(tables.head_rows(found), "Gradient"), drawn.ffn_map(tables.ffn_rows(ffns), ffn_mean(ffns))]
    for chart in made:
        assert pictures.to_svg(chart, "title").startswith(b"<svg")


def test_the_long_table_becomes_a_csv():
    from pages.ui.page.tables import for_file, to_csv

    table = pd.read_csv(io.BytesIO(to_csv(for_file(tables.head_rows(scores([[0.1, 0.4]], [[2.0, 8.0]]))))))
    assert table.columns.tolist() == ["task", "shots", "layer", "head", "name", "score", "importance_rank"]
    assert table.query("task == 'task1' and head == 1")["importance_rank"].item() == 1
    assert table.query("task == 'task1' and head == 1")["score"].item() == 8.0


def test_while_stored_results_are_read_nothing_is_found_and_nothing_is_offered(open_screen, monkeypatch):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "10")
    monkeypatch.setattr(Work, "is_first_read", True)
    at = open_screen()
    assert "Reading the stored results of Gradient" in said(at)
    assert not frames_of(at) and not [label for label in labels(at) if "easure" in label]


def test_a_preview_is_of_unfinished_tasks_and_says_how_many_questions_it_has():
    one, other = scores([[0.1, 0.4]], [[2.0, 8.0]]).items()
    few, whole = ({task: replace(each, n=n) for task, each in (one, other)} for n in (16, RANKING_QUESTIONS))
    tasks, first = list(whole), {one[0]: whole[one[0]]}
    begun = many_tasks.so_far(SimpleNamespace(stored=lambda: [Survey(begun=few)]))
    assert many_tasks.partly(begun, tasks) == ["So far, with 16 of 64 questions:"]
    for read in ([Survey(begun=few), Survey(whole)], [Survey(whole), Survey(first, begun={other[0]: few[other[0]]})]):
        found = many_tasks.so_far(SimpleNamespace(stored=lambda read=read: read))
        assert not found.begun and many_tasks.partly(found, tasks) == []
    assert many_tasks.partly(
        many_tasks.so_far(SimpleNamespace(stored=lambda: [Survey(begun=first), Survey(first)])), tasks
    ) == ["So far, with 1 of 2 tasks:"]
