"""The Correlations screen in one process: what is drawn is Spearman's rho of the importance scores that are stored."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from engine.importance.importance import Scores, importance
from engine.importance.rankings import random_order, top_overlap
from engine.questions.requests import TaskSpec
from engine.studies.surveys import Survey, agreement_rows, grid, written_row
from engine.studies.sweeps import Point, SweepRow
from pages.ui.correlations import charts, sections, tables, transfer
from pages.ui.figures.transfer import transfer_in_words
from pages.ui.page import runtime
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.page.tables import number
from tests.pages.conftest import (
    frames_of,
    labels,
    number_after,
    press,
    printed_by_the_program,
    said,
    same_on_the_command_line,
    settled,
)

NAMES = ("demo_copy", "demo_lookup", "demo_walk")


@pytest.fixture
def open_screen(open_app, only_tasks, monkeypatch):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")  # nothing is measured before a button is clicked
    only_tasks(*NAMES)
    return partial(open_app, "correlations", correlations_tasks="demo_copy,demo_lookup", correlations_shots="0")


@pytest.fixture
def measured(open_screen):
    return lambda **parameters: press(open_screen(**parameters), "Measure ")


@pytest.fixture
def stored_scores(tiny_opt):
    """Importance as engine.importance.importance has it, read from the store without the page's help."""
    from engine.models.loading import LoadSpec
    from engine.questions.requests import get_requests, select

    def stored_scores():
        session = runtime.session()
        target = session.target(LoadSpec(str(tiny_opt), "fp32"))
        found = {}
        for task in grid(NAMES, (0, 1, 5)):
            requests = get_requests(replace(task, split="train"), None, session.store)
            questions = select(requests, RANKING_QUESTIONS, "stratified")
            scores = importance(target, questions, "heads-one-divisor").stored(session)
            if scores is not None:
                found[task.name, task.shots] = scores.scores
        return found

    return stored_scores


def matrix_of(at, place=0):
    """The cells of one matrix on the screen as {(a, b): row}, by either order of a pair."""
    table = [tables["cells"] for tables in frames_of(at) if "cells" in tables][place]
    cells = {(row["a"], row["b"]): row for row in table.to_dict("records")}
    assert not any((b, a) in cells for a, b in cells), "every pair once, and none with itself"
    return cells | {(b, a): row for (a, b), row in cells.items()}


def scatter_of(at):
    return next((tables["ranks"] for tables in frames_of(at) if "ranks" in tables), None)


def test_missing_importance_is_measured_drawn_and_found_by_the_command_and_the_program(
    open_screen, stored_scores, tmp_path, capsys
):
    at = open_screen()
    assert "Not measured yet" in said(at) and not frames_of(at)
    assert "headroom correlate" in at.code[0].value
    press(at, "Measure importance")
    assert "of 2 measured" not in said(at)
    assert not any(label.startswith("Measure") for label in labels(at))
    scores = {name: array for (name, _), array in stored_scores().items()}
    assert set(scores) == {"demo_copy", "demo_lookup"}
    cells = matrix_of(at)
    assert set(cells) == {(a, b) for a in scores for b in scores if a != b}
    for (a, b), cell in cells.items():
        rho = np.mean([spearmanr(*of_layer).statistic for of_layer in zip(scores[a], scores[b], strict=True)])
        assert cell["value"] == pytest.approx(rho), (a, b)
        assert cell["number"] == number(rho)
    shared = next(tables["heads"] for tables in frames_of(at) if "heads" in tables)
    tops = [scores[name] >= np.sort(scores[name], axis=None)[-2] for name in scores]  # 30% of 8 heads
    assert shared["n"].tolist() == sum(tops).ravel().tolist()
    at.segmented_control(key="correlations_method").set_value("srcc")
    settled(at)
    for (a, b), cell in matrix_of(at).items():
        rho = spearmanr(scores[a].ravel(), scores[b].ravel()).statistic
        assert cell["value"] == pytest.approx(rho) and cell["number"] == number(rho)
    at.segmented_control(key="correlations_method").set_value("overlap")
    settled(at)
    for (a, b), cell in matrix_of(at).items():
        assert cell["value"] == pytest.approx(top_overlap(scores[a], scores[b])), (a, b)
    assert any(button.label == "Pairs of rankings (CSV)" for button in at.get("download_button"))
    assert same_on_the_command_line(at, capsys, out=tmp_path / "pairs.csv")["cached"]
    written = pd.read_csv(tmp_path / "pairs.csv")
    assert len(written) == 6
    scores["aggregate"] = np.mean([one / np.abs(one).sum() for one in scores.values()], axis=0)
    scores["random"] = random_order(8).reshape(2, 4)
    for row in written.to_dict("records"):
        rho = spearmanr(scores[row["a"]].ravel(), scores[row["b"]].ravel()).statistic
        assert row["srcc"] == pytest.approx(rho)
    mean = number_after("Mean rank correlation of two tasks: ", printed_by_the_program(at))
    two = scores["demo_copy"].ravel(), scores["demo_lookup"].ravel()
    assert mean == pytest.approx(spearmanr(*two).statistic, abs=6e-4)


def test_two_chosen_rankings_have_a_scatter_and_a_ring(measured, stored_scores):
    at = measured()
    before = scatter_of(at)
    assert len(before) == 8 and sorted(before["rank_a"]) == list(range(1, 9))
    at.selectbox(key="correlations_a").set_value("demo_lookup, 0 shots")
    settled(at)
    assert at.selectbox(key="correlations_b").options == ["demo_copy, 0 shots"], "not the same ranking twice"
    scores = {name: array.ravel() for (name, _), array in stored_scores().items()}
    shown = scatter_of(at).set_index("name")
    for side, name in (("rank_a", "demo_lookup"), ("rank_b", "demo_copy")):
        assert shown[side].tolist() == pd.Series(scores[name]).rank(ascending=False).tolist()
    rho = spearmanr(scores["demo_lookup"], scores["demo_copy"]).statistic
    assert f"**{number(rho)}** (95% interval" in said(at)
    assert matrix_of(at)["demo_copy", "demo_lookup"]["selected"]


def test_shot_counts_of_a_task_are_compared(measured, stored_scores):
    every = {"correlations_tasks": "demo_copy,demo_lookup", "correlations_shots": "0,1,5"}
    at = measured(**every, correlations_method="All layers")
    scores = stored_scores()
    both = [tables for tables in frames_of(at) if "words" in tables][0]["cells"]
    for row in both.to_dict("records"):
        a, b = (scores[row["at"], int(row[side])].ravel() for side in ("a", "b"))
        assert row["value"] == pytest.approx(spearmanr(a, b).statistic)
    mean = matrix_of(at, 1)
    for a, b in ((0, 1), (1, 5), (0, 5)):
        rho = [spearmanr(scores[name, a].ravel(), scores[name, b].ravel()).statistic for name in NAMES[:2]]
        assert mean[str(a), str(b)]["value"] == pytest.approx(np.mean(rho))
    assert "Two few-shot rankings agree" in said(at)
    at.selectbox(key="correlations_a").set_value("demo_copy, 0 shots")
    settled(at)
    at.selectbox(key="correlations_b").set_value("demo_lookup, 5 shots")  # in none of the matrices
    settled(at)
    rho = spearmanr(scores["demo_copy", 0].ravel(), scores["demo_lookup", 5].ravel()).statistic
    assert f"**{number(rho)}** (95% interval" in said(at)


def test_other_scores_can_be_chosen(measured):
    at = measured()
    at.segmented_control(key="correlations_what").set_value("ffns")
    settled(at)
    assert "Not measured yet" in said(at)
    press(at, "Measure ")
    names = {name for _, name in matrix_of(at)}
    assert names == {"demo_copy", "demo_lookup"} and "--score ffns" in at.code[0].value


# the parts without a browser: frames, sentences and charts


def survey(scores):
    return Survey({task: Scores("heads", 10, array) for task, array in scores.items()})


def two_by_four(*rows):
    return np.array(rows, float).reshape(2, 4)


def many(n_tasks, shape=(4, 8), shots=(0, 1, 5)):
    rng = np.random.default_rng(0)
    common = rng.random(shape)
    return survey({TaskSpec(f"task_{at:02}", count): common + (0.2 + at / n_tasks) * rng.random(shape)
                   for at in range(n_tasks) for count in shots})  # fmt: skip


CONSTANT = survey({TaskSpec("flat"): np.ones((2, 4)), TaskSpec("rising"): two_by_four(range(8))})


def of_tasks(found, shots=0, how="scores"):
    pairs = tables.between_tasks(tables.pair_rows(found, how))
    return pairs[(pairs["kind"] == "tasks") & (pairs["at"] == str(shots))]


def test_every_label_of_a_pair_has_its_scores():
    found = many(3)
    for how in ("scores", "ranks"):
        pairs, scores = tables.pair_rows(found, how), tables.rankings(found)
        for row in tables.between_tasks(pairs).to_dict("records"):
            rho = spearmanr(scores[row["first"]].ravel(), scores[row["second"]].ravel()).statistic
            assert row["srcc"] == pytest.approx(rho), (how, row["first"], row["second"])
        assert set(scores) == set(tables.labels([f"task_0{at}" for at in range(3)], [0, 1, 5]))
        kept = tables.csv_rows(pairs)
        assert kept.to_dict("records") == [written_row(row) for row in agreement_rows(found, how)]


def test_the_digest_follows_every_score():
    a, b = (two_by_four(range(8)) for _ in range(2))
    first = tables.digest(survey({TaskSpec("x"): a}))
    assert first == tables.digest(survey({TaskSpec("x"): b}))
    b[1, 3] += 1e-12
    assert len({first, tables.digest(survey({TaskSpec("x"): b})), tables.digest(survey({TaskSpec("y"): a}))}) == 3


def test_constant_scores_are_undefined_everywhere():
    pairs = of_tasks(CONSTANT)
    (cell,) = tables.cells(pairs, "srcc", ["flat", "rising"]).to_dict("records")
    assert np.isnan(cell["value"]) and cell["number"] == "–" and cell["srcc"] == tables.UNDEFINED
    assert tables.cells(pairs, "overlap", ["flat", "rising"])["number"].tolist() == ["–"]
    assert tables.takeaway(pairs, "srcc", 8) == ""
    said = tables.pair_in_words(pairs, tables.rankings(CONSTANT), "flat, 0 shots", "rising, 0 shots")
    assert said == f"Rank correlation {tables.UNDEFINED}."


def test_the_order_by_similarity_puts_those_that_agree_side_by_side():
    up, jump = np.arange(8.0), np.array([0, 7, 1, 6, 2, 5, 3, 4.0])
    scores = {"a": up, "b": jump, "c": up + [0, 2, 0, 0, 0, 0, 0, 0], "d": jump + [0, 0, 0, 0, 0, 0, 2, 0]}
    pairs = of_tasks(survey({TaskSpec(name): two_by_four(row) for name, row in scores.items()}))
    ordered = tables.names_in_order(pairs, "similarity")
    assert {frozenset(ordered[:2]), frozenset(ordered[2:])} == {frozenset("ac"), frozenset("bd")}
    assert ordered == tables.names_in_order(pairs.iloc[::-1], "similarity")
    assert tables.names_in_order(pairs, "chosen") == ["a", "b", "c", "d"]
    cells = tables.cells(pairs, "srcc", ordered)
    assert len(cells) == 6 and all(cells["a"].map(ordered.index) > cells["b"].map(ordered.index)), "below the diagonal"


def test_few_shot_rankings_agree_more_only_if_their_mean_is_higher():
    pairs = tables.pair_rows(many(4), "scores")
    cross = pairs[pairs["kind"] == "shots"]
    swapped = cross.assign(srcc=[0.9 if "0 shots" not in both else 0.5 for both in zip(cross["a"], cross["b"])])  # noqa: B905
    assert "agree more than" in tables.few_in_words(swapped, "srcc")
    assert "agree no more than" in tables.few_in_words(swapped.assign(srcc=1 - swapped["srcc"]), "srcc")


def test_ties_share_their_mean_rank():
    ranks = tables.rank_rows(two_by_four([0, 0, 1, 2, 3, 4, 5, 6]), np.arange(8.0).reshape(2, 4))
    assert ranks["rank_a"].tolist()[:3] == [7.5, 7.5, 6] and ranks["name"].tolist()[4] == "L1H0"
    assert tables.rank_rows(np.arange(3.0), np.arange(3.0))["name"].tolist() == ["F0", "F1", "F2"]


def agreement_of(srcc, n_tasks=3, scores=None):
    """Tasks that all agree by as much."""
    found = many(n_tasks)
    return tables.ScoreAgreement(of_tasks(found).assign(srcc=srcc), scores or found.at(0))


def all_charts(found, selected=("task_00, 0 shots", "task_01, 0 shots")):
    pairs, tasks = tables.pair_rows(found, "scores"), of_tasks(found)
    names, cross = tables.names_in_order(tasks, "chosen"), pairs[pairs["kind"] == "shots"]
    made = [charts.matrix(tables.cells(tasks, column, names), names, selected, charts.MEASURES[column])
            for column in charts.MEASURES]  # fmt: skip
    if len(cross):
        cells = tables.count_cells(cross, "srcc")
        made.append(charts.mean_matrix(tables.mean_cells(cells), ["0", "1", "5"], charts.MEASURES["srcc"]))
        every = sorted(set(cells["at"]))
        made.append(charts.small_matrices(cells, every, ["0", "1", "5"], selected, charts.MEASURES["srcc"]))
    first, second = list(tables.rankings(found).items())[:2]
    made.append(charts.rank_scatter(tables.rank_rows(first[1], second[1]), first[0], second[0], "Head"))
    return made


def test_charts_become_files():
    from engine.views.pictures import to_svg

    for found in (many(3), CONSTANT):
        for chart in all_charts(found):
            assert to_svg(chart, "title").startswith(b"<svg")


def scales(chart):
    """Every scale of a chart's specification, without the order of names."""

    def walk(part):
        if isinstance(part, dict):
            yield from [json.dumps(part["scale"], sort_keys=True)] if "scale" in part else []
            for value in part.values():
                yield from walk(value)
        if isinstance(part, list):
            for value in part:
                yield from walk(value)

    return list(walk({key: value for key, value in chart.spec.items() if key != "datasets"}))


def test_scales_do_not_move_with_the_data():
    weak, strong = many(3), many(3)
    strong = survey({task: each.scores**9 for task, each in strong.scores.items()})
    for one, other in zip(all_charts(weak), all_charts(strong), strict=True):
        assert scales(one) == scales(other) and scales(one)
    domains = [next(json.loads(scale)["domain"] for scale in scales(chart)) for chart in all_charts(weak)[:3]]
    assert domains == [[-1, 1], [-1, 1], [0, 1]]


def test_agreement_within_a_layer_is_the_mean_over_layers_and_unknown_where_most_tie():
    found = many(3)
    pairs, scores = tables.pair_rows(found, "scores"), tables.rankings(found)
    for row in tables.between_tasks(pairs).to_dict("records"):
        a, b = scores[row["first"]], scores[row["second"]]
        within = np.mean([spearmanr(*of_layer).statistic for of_layer in zip(a, b, strict=True)])
        assert row["within"] == pytest.approx(within), (row["first"], row["second"])
    assert pairs[pairs["a"].isin(tables.CONTROLS) | pairs["b"].isin(tables.CONTROLS)]["within"].isna().all()
    tied = {TaskSpec("x"): np.ones((2, 4)), TaskSpec("y"): two_by_four(range(8)), TaskSpec("z"): two_by_four(range(8))}
    known = of_tasks(survey(tied)).set_index(["a", "b"])["within"]
    assert known.dropna().to_dict() == {("y", "z"): 1} and len(known) == 3
    assert of_tasks(survey({TaskSpec(name): np.arange(4.0) for name in "xy"}))["within"].isna().all(), "FFNs"


def test_a_click_beside_the_cells_of_a_matrix_chooses_nothing():
    assert sections.clicked_pair([{"first": "b, 0 shots", "second": "a, 0 shots"}]) == ("b, 0 shots", "a, 0 shots")
    for nothing in (None, [], [{}], [{"first": "b, 0 shots"}]):
        assert sections.clicked_pair(nothing) is None


def test_a_clicked_cost_chooses_the_rankings_of_both_tasks():
    named = {"a": TaskSpec("demo_a", 5), "b": TaskSpec("demo_b", 5)}
    two = ["demo_a, 5 shots", "demo_b, 5 shots"]
    assert sections.clicked_order([{"task": "a", "source": "b"}], named) == two
    for nothing in (None, [], [{}], [{"task": "a", "source": "a"}], [{"task": "a", "source": "all tasks"}]):
        assert sections.clicked_order(nothing, named) is None


def test_heads_are_counted_by_the_tasks_that_need_them():
    scores = {"a": two_by_four(range(8)), "b": two_by_four([9, 0, 1, 2, 3, 4, 5, 7]), "c": two_by_four(range(8))}
    rows = tables.shared_rows(scores).set_index("name")
    assert rows["n"].tolist() == [1, 0, 0, 0, 0, 0, 2, 3]
    assert rows.loc["L1H2", "tasks"] == "a, c" and rows.loc["L0H1", "tasks"] == "none"
    said = tables.shared_in_words(rows, 3)
    assert said == "1 of 8 heads are in the top 30% of all 3 tasks (by chance 0.1)."
    tied = two_by_four([3, 2, 2, 1, 0, 0, 0, 0])
    for left_out in ({"a": scores["a"]}, {"a": scores["a"], "b": tied}, {"a": np.arange(8.0), "b": np.arange(8.0)}):
        assert tables.shared_rows(left_out).empty


def test_the_finding_says_how_far_tasks_agree():
    def said(column="srcc", **of):
        return tables.takeaway(agreement_of(**of).pairs, column, 32)

    mean = "mean rank correlation **0.90** over 3 pairs of tasks, from 0.90 to 0.90"
    assert said(srcc=0.9) == f"Tasks rank heads **largely alike**: {mean}."
    assert "**partly alike**" in said(srcc=0.5) and "**no detectable agreement**" in said(srcc=0.1)
    assert said(srcc=np.nan) == ""
    tied = agreement_of(0.5, scores={"x": np.ones(8), "y": np.arange(8.0)})
    assert tables.ties_in_words(tied, "FFN") == "8 of 8 FFNs tie on a task: their order says nothing."
    assert tables.ties_in_words(agreement_of(0.5), "head") == ""


def test_charts_leave_their_frames_alone():
    cells = tables.cells(of_tasks(many(2)), "srcc", ["task_00", "task_01"])
    before = cells.copy()
    charts.matrix(cells, ["task_00", "task_01"], (), charts.MEASURES["srcc"])
    pd.testing.assert_frame_equal(cells, before)


def test_an_empty_screen_leads_to_the_demo_model(open_screen, monkeypatch):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    at = open_screen()
    assert at.button(key="measure correlations heads-one-divisor").proto.type == "primary"
    at.button(key="see demo").click()
    at.run()
    assert at.session_state["model"] == "demo" and at.session_state["precision"] == "int8" and not at.exception
    assert at.session_state["correlations_shots"] == ["5"], "those of the results that come with the app"
    assert "See it on the demo model" not in labels(at)


def test_ties_across_the_top_30_percent_leave_it_out():
    scores = {"a": two_by_four([3, 2, 2, 1, 0, 0, 0, 0]), "b": two_by_four(range(8))}
    assert tables.ties_at_cut(scores["a"]) and not tables.ties_at_cut(scores["b"])
    pairs = of_tasks(survey({TaskSpec(name): each for name, each in scores.items()}))
    assert pairs["overlap"].isna().all()
    said = tables.pair_in_words(
        pairs, {f"{name}, 0 shots": each for name, each in scores.items()}, *pairs.iloc[0][["first", "second"]]
    )
    assert "in each top 30%" not in said
    lines = charts.rank_scatter(tables.rank_rows(*scores.values()), "a", "b", "Head").datasets["lines"]
    assert [each["line"] for each in lines] == ["agreement"]


def swept(task, by, of, acc):
    return SweepRow(Point(TaskSpec(task, 5), 700, 0, by, of), 100, acc, acc, acc, 0.25, 1, 0, 0, 0, 1.0)


def test_what_another_tasks_order_costs_is_against_the_own_order():
    rows = [swept("demo_a", "own", "", 0.9), swept("demo_b", "own", "", 0.8), swept("demo_a", "task", "demo_b", 0.95)]
    rows += [swept("demo_b", "task", "demo_a", 0.6), swept("demo_a", "task", "demo_a", 0.9)]
    found = transfer.rows_of(rows)
    assert found[["task", "source", "own"]].to_numpy().tolist() == [
        ["a", "b", False],
        ["b", "a", False],
        ["a", "a", True],
    ]
    assert found["lost"].tolist() == pytest.approx([-5, 20, 0])
    worst = "at 70% of heads pruned, b loses **20 points** by the ranking of a."
    assert transfer_in_words(found, 0.7) == f"**Not all tasks need the same heads**: {worst}"
    assert transfer_in_words(found.assign(clear=False), 0.7) == f"A{worst[1:]}", "it may be chance"
    alike = "**These tasks could share one ranking**: at 70% of heads pruned, none loses 5 points by that of another."
    assert transfer_in_words(found.assign(lost=4.9), 0.7) == transfer_in_words(found[:0], 0.7) == alike


def test_the_costliest_order_is_that_of_the_largest_loss(monkeypatch):
    of = transfer.Transfer(None, [TaskSpec(f"demo_{letter}", 5) for letter in "abcd"], 625)
    found = pd.DataFrame([("a", "d", 20.0, False, True)], columns=["task", "source", "lost", "own", "clear"])
    for rows, names in ((found, ["demo_a", "demo_d"]), (found.assign(lost=4.9), []), (None, [])):
        monkeypatch.setattr(transfer.Transfer, "rows", rows)
        assert of.costliest == names


def costs_of(at):
    """Tasks and orders on the map of what an order costs; each task's own is not there."""
    found = [tables["transfer"] for tables in frames_of(at) if "transfer" in tables]
    return [{*zip(frame["task"], frame["source"], strict=True)} for frame in found]


def every_two(*names):
    return {(a, b) for a in names for b in names if a != b}


def test_what_another_tasks_order_costs_is_measured_on_demand_and_told(measured):
    at = measured()
    assert "50% of heads pruned" not in said(at) and not costs_of(at)
    press(at, "Prune 50% by each of 2 rankings")
    settled(at)
    assert costs_of(at) == [every_two("copy", "lookup")] and "at 50% of heads pruned, none loses" in said(at)
    coefficient = at.segmented_control(key="correlations_method")
    assert coefficient.value == "cost" and coefficient.options[:2] == ["Points lost", "Within a layer"]
    at.session_state["correlations_method written"] = None  # a value that the app writes is held for a moment
    coefficient.set_value("within")
    settled(at)
    assert not costs_of(at) and set(matrix_of(at)) == every_two("demo_copy", "demo_lookup")
    assert "none loses" not in said(at) and "within a layer" in said(at), "the finding is of the matrix that is shown"
