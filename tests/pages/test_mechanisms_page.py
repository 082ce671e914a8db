"""The Mechanisms screen in one process: nothing is measured before a click; then its rows are those of the command."""

from functools import partial

import pandas as pd
import pytest

from engine.studies.mechanisms import KINDS
from pages.ui.mechanisms import tables
from tests.pages.conftest import frames_of, press, said, same_on_the_command_line


@pytest.fixture
def open_screen(open_app, monkeypatch):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    return partial(open_app, "mechanisms", mechanisms_tasks="demo_copy", mechanisms_shots="1")


@pytest.mark.slow("measures every kind of heads of a model, in the app and by the command")
def test_kinds_are_measured_at_a_click_and_drawn_as_the_command_writes_them(open_screen, capsys, tmp_path):
    at = open_screen()
    assert "Not measured yet" in said(at) and not at.get("vega_lite_chart")
    at = press(at, "Measure kinds of heads")
    assert not at.exception
    [drawn] = [each["cells"] for each in frames_of(at)]
    found = same_on_the_command_line(at, capsys, out=tmp_path / "rows.csv")
    rows = [row for row in found["rows"] if row["kind"] != "random"]
    by_share = sorted(rows, key=lambda row: -row["share"])
    assert drawn["heads"].tolist() == [row["heads"] for row in by_share]
    assert drawn["lost"].tolist() == pytest.approx([row["points_lost"] for row in by_share])
    assert drawn["beyond_random"].tolist() == [row["beyond_random"] for row in by_share]
    assert drawn["random_high"].tolist() == pytest.approx([row["random_high"] for row in by_share])
    assert found["finding"] in said(at)
    assert [warning.value.partition(":")[0] for warning in at.warning] == [*found["not_measured"]]
    assert set(drawn["kind"]) | {*found["not_measured"]} == {*KINDS}


def test_without_a_task_the_screen_says_so(open_screen):
    at = open_screen()
    at.multiselect(key="mechanisms_tasks").set_value([]).run()
    assert [line.value for line in at.info] == ["Choose at least one task."]


def test_a_row_says_how_many_heads_are_removed():
    row = {"kind": "induction", "share": 0.05, "points_lost": 1.0, "low": 0.0, "high": 2.0, "exclusive": False}
    rows = tables.chart_rows(pd.DataFrame([row | {"n_heads": 2}, row | {"n_heads": 1, "share": 0.02}]))
    assert rows["row"].tolist() == ["induction, 5% (2 heads)", "induction, 2% (1 head)"]


def test_nothing_is_called_shipped_before_a_figure_is_shown(open_screen, monkeypatch):
    monkeypatch.setenv("HEADROOM_SHIPPED", "1")
    at = open_screen()
    assert "Not measured yet" in said(at) and "shipped" not in said(at)


def test_fewer_heads_are_a_setting_and_part_of_the_command(open_screen):
    at = open_screen(mechanisms_heads="2% and 1%")
    assert "--shares 1,2" in at.code[0].value and not at.exception
