"""The Mechanisms screen in one process: nothing is measured before a click; then its rows are those of the command."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from engine.heads.vector_switch import SPLITS, TEST, TRAIN, VectorSwitch
from engine.shapes import ModelShape
from engine.studies.mechanisms import KINDS, OF_PAIRS, RANDOM, SOON, Mechanisms, MechanismSettings
from pages.ui.controls import many_tasks
from pages.ui.mechanisms import tables, vector
from tests.pages.conftest import frames_of, labels, press, said, same_on_the_command_line


@pytest.fixture
def open_screen(open_app, monkeypatch):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    return partial(open_app, "mechanisms", mechanisms_tasks="demo_copy", mechanisms_shots="1")


@pytest.mark.slow("measures every kind of heads of a model, in the app and by the command")
def test_kinds_are_measured_at_a_click_and_drawn_as_the_command_writes_them(open_screen, capsys, tmp_path, monkeypatch):
    at = open_screen(mechanisms_fewer="true")
    assert "Not measured yet" in said(at) and not at.get("vega_lite_chart")
    at = press(at, "Measure 5 kinds")
    assert not at.exception
    drawn = pd.concat([each["cells"] for each in frames_of(at) if "cells" in each])
    found = same_on_the_command_line(at, capsys, out=tmp_path / "rows.csv")
    rows = pd.DataFrame(found["rows"])
    both = [each.sort_values(["share", "kind", "draw"]) for each in (drawn, rows)]
    for column in ("kind", "heads", "beyond_random", "points_lost", "low", "high"):
        assert both[0][column].tolist() == pytest.approx(both[1][column].tolist()), column
    assert found["finding"] in said(at).replace("**", "")
    assert [warning.value.partition(":")[0] for warning in at.warning] == [*found["not_measured"]]
    assert {*drawn["kind"]} | {*found["not_measured"]} == {*KINDS, RANDOM}
    pruned = rows[(rows["kind"] == "induction") & (rows["share"] == 0.1)]["heads"].iloc[0]
    opened = []
    monkeypatch.setattr("pages.ui.controls.heads.set_pruned", lambda screen, mask: opened.append((screen, mask)))
    at = press(at, "Induction")
    assert opened == [("prune", " ".join(sorted(pruned.split())))]


def test_without_a_task_or_a_kind_the_screen_says_so(open_screen):
    at = open_screen()
    at.multiselect(key="mechanisms_tasks").set_value([]).run()
    assert [line.value for line in at.info] == ["Choose at least one task."]
    at.multiselect(key="mechanisms_tasks").set_value(["demo_copy"]).run()
    at.multiselect(key="mechanisms_kinds").set_value([]).run()
    assert [line.value for line in at.info] == ["Choose at least one kind."]


def test_rows_are_sorted_by_what_is_lost_with_random_sets_last():
    row = {"share": 0.1, "n_heads": 2, "low": 1.0, "high": 2.0, "exclusive": False, "heads": "L0H1 L2H3"}
    rows = pd.DataFrame([row | {"kind": kind, "points_lost": lost}
                         for kind, lost in (("random", 9.0), ("concept", 1.0), ("induction", 8.0))])  # fmt: skip
    less = rows.assign(share=0.02, n_heads=1, points_lost=0.0, low=-1.0)
    found = tables.chart_rows(pd.concat([less, rows], ignore_index=True).assign(beyond_random=False), 10.0)
    assert found.loc[found["points_lost"] == 8, ["left", "left_low", "left_high"]].values.tolist() == [[2, 8, 9]]
    assert found.loc[found["share"] == 0.1, "is_clear"].all() and not found.loc[found["share"] < 0.1, "is_clear"].any()
    assert found[found["named"] != ""][["kind", "share", "named"]].values.tolist() == [
        ["random", 0.1, "drew L0H1, L2H3"]
    ]
    assert found["kind"].unique().tolist() == ["induction", "concept", "random"]


def test_what_a_vector_does_is_said_of_test_pairs_at_the_layer_that_is_best_on_train_pairs():
    train, test = np.zeros((3, 50), bool), np.zeros((3, 50), bool)
    train[1, :20], test[1, :30], test[2, :40] = True, True, True
    none, all_of_them = np.zeros(50, bool), np.ones(50, bool)
    found = VectorSwitch(
        ((1, 0),), dict.fromkeys(SPLITS, all_of_them), dict.fromkeys(SPLITS, none), {TRAIN: train, TEST: test}
    )
    rows = vector.rows_of(found)
    assert rows["acc"].tolist() == [0, 0.6, 0.8] and rows["is_best"].tolist() == [False, True, False]
    said = vector.in_words("plural", found)
    assert said.startswith(
        "The likeliest next token is right for 0% of 50 test pairs of plural without examples, for **60%** with the"
    )
    assert said.endswith("and for 100% with 10 examples.")
    weak = replace(found, switched={TRAIN: train, TEST: np.zeros((3, 50), bool)})
    assert vector.in_words("plural", weak).endswith("**No vector of these heads clearly does the task.**")


def test_nothing_is_called_shipped_before_a_figure_is_shown(open_screen, monkeypatch):
    monkeypatch.setenv("HEADROOM_SHIPPED", "1")
    at = open_screen()
    assert "Not measured yet" in said(at) and "shipped" not in said(at)


@pytest.mark.slow("scores and removes three kinds of heads of a model")
def test_a_quick_look_shows_fewer_kinds_and_questions_and_says_so(open_screen, monkeypatch):
    assert not [label for label in labels(open_screen()) if label.startswith("Quick look")], "all of it is quick"
    monkeypatch.setattr(many_tasks, "BUDGET_S", 0.0)
    at = press(open_screen(), "Quick look: 3 kinds, 16 questions")
    assert not at.exception and at.number_input(key="mechanisms_limit").value == many_tasks.QUICK
    assert at.multiselect(key="mechanisms_kinds").value == [*SOON]
    assert "--kinds induction,retrieval,importance" in at.code[0].value and "--limit 16" in at.code[0].value
    drawn = pd.concat([each["cells"] for each in frames_of(at) if "cells" in each])
    copies_nothing = {warning.value.partition(":")[0] for warning in at.warning}
    assert {*drawn["kind"]} | copies_nothing == {*SOON, RANDOM} and copies_nothing <= {"retrieval"}
    assert [label.partition(",")[0] for label in labels(at) if "questions" in label] == ["Measure with 5 kinds"]


@pytest.mark.slow("scores every kind of heads of a model")
def test_heads_are_scored_and_compared_before_any_are_removed(open_screen, monkeypatch):
    nothing = open_screen(mechanisms_tasks="pairs_plural,pairs_past")
    assert "is not measured yet" in said(nothing) and not nothing.get("vega_lite_chart"), "without background work"
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "10")
    other = open_screen(mechanisms_tasks="pairs_plural")
    assert not other.get("vega_lite_chart"), "only of the tasks that the screen opens with"
    at = open_screen(mechanisms_tasks=",".join(OF_PAIRS))
    assert "Not measured yet" in said(at) and any(label.startswith("Measure 5 kinds") for label in labels(at))
    [pairs] = [each["pairs"] for each in frames_of(at)]
    assert {*pairs["a"], *pairs["b"]} == {*at.dataframe[0].value["kind"]}
    assert {*SOON} - {"retrieval"} <= {*pairs["a"], *pairs["b"]}, "a random model may copy nothing"
    assert "heads share the most" in said(at)


def test_the_best_heads_are_listed_and_awaited_kinds_have_a_row():
    shape = ModelShape(2, 2, 4, 8, 4, 16, 32, 16)
    scores = {"induction": np.array([[0.9, 0.1], [0.5, 0.2]]), "retrieval": np.array([[0.9, 0.1], [0.5, 0.2]])}
    found = Mechanisms(MechanismSettings(("task",), kinds=("induction", "retrieval", "concept")), scores)
    shown = tables.shown_kinds(tables.kind_rows(found, shape), ["concept"])
    assert shown["heads"].tolist() == ["L0H0, L1H0, L1H1, L0H1"] * 2 + ["…"]


def test_fewer_heads_and_labels_are_settings_and_part_of_the_command(open_screen):
    at = open_screen(mechanisms_heads="2% and 1%", mechanisms_labels="Shuffled")
    assert "--shares 1,2" in at.code[0].value and "--labels shuffled" in at.code[0].value and not at.exception
