"""The Heads screen in one process: the map, the card of a head, heads alone and together, and the rankings of tasks."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import spearmanr

from engine.heads.induction import induction
from engine.importance.importance import importance
from engine.models.loading import LoadSpec
from engine.questions.requests import TaskSpec, get_requests, select
from pages.ui.page import runtime
from pages.ui.page.defaults import RANKING_QUESTIONS
from tests.pages.conftest import frames_of, labels, press, ran, said, same_on_the_command_line, settled

NAMES = ("demo_copy", "demo_lookup", "demo_walk")


@pytest.fixture
def open_screen(open_app, only_tasks):
    only_tasks(*NAMES)
    return partial(open_app, "heads")


def maps_of(at):
    return [table for tables in frames_of(at) for table in tables.values() if {"shade", "selected"} <= {*table}]


def stored(at, what, task, tiny_opt):
    session = runtime.session()
    target = session.target(LoadSpec(str(tiny_opt), "fp32"))
    questions = select(get_requests(task, None, session.store), RANKING_QUESTIONS, "stratified")
    return importance(target, questions, what).stored(session)


def test_it_waits_for_a_click_and_draws_what_each_head_costs(open_screen, questions, tiny_opt, tmp_path, capsys):
    at = open_screen(heads_color="Measured cost")
    assert not maps_of(at) and "You will see a map of all heads" in said(at)
    settled(press(at, "Measure 1 missing"))
    settled(press(at, "Measure 1 missing"))  # the FFNs
    [table] = maps_of(at)
    task = TaskSpec(str(questions), 0, "train")
    scores, ffns = (stored(at, what, task, tiny_opt) for what in ("heads-oracle", "ffns"))
    rows = table.set_index("name")["score"]
    assert rows[[f"L1H{head}" for head in range(4)]].tolist() == pytest.approx((100 * scores.scores[1]).tolist())
    assert rows[["F0", "F1"]].tolist() == pytest.approx((100 * ffns.scores).tolist())
    [clear] = {*table.loc[table["column"].ne("FFN"), "is_clear"]} or [None]
    assert clear == bool(scores.is_clear.any())
    assert same_on_the_command_line(at, capsys, 0, tmp_path / "o.csv")["what"] == "heads-oracle"


def test_a_model_opens_on_what_can_be_shown(measures_ahead, open_screen):
    at = open_screen()
    [table] = maps_of(at)
    assert table["score"].notna().any() and "looks at" in said(at)


def test_a_head_is_chosen_pruned_and_restored(measures_ahead, open_screen):
    at = open_screen(head="L1H2")
    assert "**L1H2**" in said(at)
    [table] = maps_of(at)
    assert table.loc[table["selected"], "name"].tolist() == ["L1H2"]
    press(at, "Prune it")
    assert at.session_state["mask"] == "L1H2" and "Restore it" in labels(at)
    [table] = maps_of(at)
    assert table.loc[table["pruned"], "name"].tolist() == ["L1H2"]
    at.text_input(key="head").set_value("nose")
    ran(at)
    assert any("is not a head of this model" in each.value for each in at.error)


def test_a_kept_head_of_a_level_is_restored_by_name(measures_ahead, open_screen):
    at = open_screen(head="L0H1", heads="100", order="random")
    assert "Restore it" in labels(at)
    press(at, "Restore it")
    assert at.session_state["mask"] == "keep L0H1" and "Prune it" in labels(at)


def test_the_card_is_of_stored_results(open_screen, tiny_opt):
    at = open_screen(head="L1H2", heads_color="Induction")
    assert "**L1H2**." not in said(at) and not maps_of(at)
    settled(press(at, "Measure induction"))
    [table] = maps_of(at)
    session = runtime.session()
    found = induction(session.target(LoadSpec(str(tiny_opt), "fp32"))).stored(session)
    assert table["score"].tolist() == pytest.approx(found.mean["prefix_matching"].ravel().tolist())
    assert table["dot"].tolist() == (found.copying_share > found.chance).ravel().tolist()
    assert "prefix matching" in said(at)


def test_alone_and_together_is_what_the_command_prints(open_screen, capsys):
    at = settled(press(open_screen(), "Measure"))
    while any(label.startswith("Measure, ") or label == "Measure" for label in labels(at)):
        at = settled(press(at, "Measure"))
    commands = at.code[0].value.splitlines()
    [number] = [number for number, each in enumerate(commands) if " ablate " in each]
    found = same_on_the_command_line(at, capsys, number)
    assert found["cached"] and [each for each in found["alone"]]


def test_rankings_of_tasks_are_drawn_and_compared(open_screen, tmp_path, capsys):
    at = open_screen(heads_tab="Across tasks", heads_tasks="demo_copy,demo_lookup", heads_shots="0")
    assert "You will see how far these tasks rank heads alike" in said(at)
    settled(press(at, "Measure these rankings"))
    session, scores = runtime.session(), {}
    [request] = [each for each in at.code[0].value.splitlines() if "correlate" in each]
    target = session.target(LoadSpec(request.split("--model ")[1].split()[0], "fp32"))
    for name in ("demo_copy", "demo_lookup"):
        questions = select(
            get_requests(TaskSpec(name, 0, "train"), None, session.store), RANKING_QUESTIONS, "stratified"
        )
        scores[name] = importance(target, questions, "heads-one-divisor").stored(session).scores
    [matrix] = [table for tables in frames_of(at) for table in tables.values() if {"a", "b", "value"} <= {*table}]
    values = matrix.set_index(["a", "b"])["value"]
    rho = spearmanr(*(each.ravel() for each in scores.values())).statistic
    assert values["demo_copy", "demo_lookup"] == values["demo_lookup", "demo_copy"] == pytest.approx(rho)
    assert np.isnan(values["demo_copy", "demo_copy"])
    [ranks] = [table for tables in frames_of(at) for table in tables.values() if "rank_a" in table]
    assert len(ranks) == 8 and "rank correlation" in said(at)
    out = same_on_the_command_line(at, capsys, 0, tmp_path / "correlations.csv")
    assert out["mean_srcc"]["0"] == pytest.approx(rho)


def test_what_is_folded(measures_ahead, open_screen):
    at = open_screen(
        section_prefix_matching_against_copying="True",
        section_what_pruning_keeps_of_the_induction_capacity="True",
        heads_table="True",
    )
    at = settled(press(at, "Measure")) if any(each.startswith("Measure") for each in labels(at)) else at
    tables = [{*table} for tables in frames_of(at) for table in tables.values()]
    assert {"prefix_matching", "copying_share"} <= set().union(*tables)
    assert any("prefix_matching" in frame.value for frame in at.dataframe)
