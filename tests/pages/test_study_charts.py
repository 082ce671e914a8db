"""The charts of a study, and the rows behind them: what is drawn is what was measured."""

from dataclasses import replace

import pytest

from engine.questions.requests import TaskSpec
from engine.studies.statements import break_points
from engine.studies.sweeps import Point, SweepRow
from pages.ui.figures import study_charts, study_tables
from pages.ui.figures.transfer import transfer_in_words, transfer_map, transfer_rows

TASKS = [TaskSpec(name, shots) for name in ("piqa", "copa") for shots in (0, 5)]


def row(task, heads, ffns, acc, by="own", of="", seed=0, lost=0, n=100):
    p = 0.001 if lost > 10 else 1.0
    return SweepRow(
        Point(task, heads, ffns, by, of, seed), n, acc, acc - 0.1, acc + 0.1, 0.25, heads // 100, 0, 0, lost, p
    )


def falling(task, start=0.9):
    """Flat to 50%, then down to chance."""
    return [row(task, level, 0, start if level <= 500 else 0.25, lost=0 if level <= 500 else 60)
            for level in range(0, 1001, 100)]  # fmt: skip


def test_curves_have_means_only_where_every_task_is_measured():
    found = study_tables.curves([*falling(TASKS[0]), *falling(TASKS[2], 0.7)[:6]], [], "heads")
    means = found[found["place"] == "mean"].set_index("level")["acc"]
    assert means.index.tolist() == [0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert means.tolist() == pytest.approx([0.8] * 6)
    assert "Not every task" in study_tables.curves_in_words(found, "heads")


def test_the_band_spans_the_means_of_the_seeds():
    own = [*falling(TASKS[0]), *falling(TASKS[2], 0.7)]
    drawn_at = {0: (0.2, 0.4), 1: (0.6, 0.8)}
    random = [row(task, 400, 0, acc, "random", seed=seed)
              for seed, pair in drawn_at.items() for task, acc in zip(TASKS[::2], pair, strict=True)]  # fmt: skip
    band = study_tables.curves(own, random, "heads")
    band = band[band["place"] == "random"].set_index("level")
    assert band.loc[0.4, ["low", "acc", "high"]].tolist() == pytest.approx([0.3, 0.5, 0.7])
    assert band.loc[0.0, "acc"] == pytest.approx(0.8), "the full model is every ranking's beginning"


def test_the_border_runs_between_small_and_large_losses():
    rows = [
        row(TASKS[0], h, f, 0.9 - (0.5 if h + f > 1000 else 0.0)) for h in range(0, 1001, 500) for f in (0, 500, 1000)
    ]
    cells = study_tables.grid(rows)
    assert cells.set_index(["heads", "ffns"])["lost"].round(6).to_dict()[(1.0, 0.5)] == 50
    edges = study_tables.border(cells)
    found = {tuple(round(value, 3) for value in edge) for edge in edges[["x", "y", "x2", "y2"]].to_numpy()}
    upright = {(0.25, 0.75, 0.25, 1.25), (0.75, 0.25, 0.75, 0.75)}
    assert found == upright | {(0.25, 0.75, 0.75, 0.75), (0.75, 0.25, 1.25, 0.25)}
    assert "100% of heads with 0% of FFNs" in study_tables.grid_in_words(cells)


def test_transfer_is_against_the_tasks_own_ranking():
    own = [row(TASKS[0], 500, 0, 0.8), row(TASKS[2], 500, 0, 0.6)]
    others = [row(TASKS[0], 500, 0, 0.7, "task", "copa"), row(TASKS[0], 500, 0, 0.8, "task", "piqa"),
              row(TASKS[0], 500, 0, 0.75, "aggregate")]  # fmt: skip
    found = transfer_rows(others, own).set_index("source")
    assert found["lost"].round(6).to_dict() == {"copa": 10, "piqa": 0, "all tasks": 5}
    assert found["own"].to_dict() == {"copa": False, "piqa": True, "all tasks": False}
    assert "piqa loses **10 points** by the ranking of copa." in transfer_in_words(found.reset_index(), 0.5)
    apart = found.reset_index().assign(lost=[10.0, -34.0, 0.2], clear=[False, True, False])
    assert [each["change"] for each in transfer_map(apart).datasets["transfer"]] == ["10", "−34*", "0"]
    assert not found["clear"].any() and transfer_rows([replace(others[0], high=0.65)], own)["clear"].all()


def test_break_points_state_what_the_questions_detect():
    table = study_tables.break_table(break_points(falling(TASKS[0]), "heads"))
    assert round(table["detects_points"][0], 2) == 11.19 and table["no_loss_up_to"].tolist() == [0.5]


def test_charts_keep_their_scales():
    own = falling(TASKS[0])
    curves = study_charts.curves(study_tables.curves(own, [], "heads"), "heads").spec
    scaled = [layer["encoding"]["y"] for layer in curves["layer"] if "field" in layer["encoding"].get("y", {})]
    assert {y["scale"]["domain"][1] for y in scaled} == {study_tables.TOP}
    cells = study_tables.grid(own)
    grid = study_charts.grid_map(study_tables.spread(cells), study_tables.border(cells)).spec
    assert grid["layer"][0]["encoding"]["color"]["scale"]["domain"] == [0, 50]
    transfer = transfer_map(transfer_rows([row(TASKS[0], 500, 0, 0.7, "task", "copa")], own))
    scale = transfer.spec["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == [-30, 30] and not scale.get("reverse"), "points lost are orange"
    assert transfer.datasets["transfer"][0]["lost"] == pytest.approx(20)
    lines = study_charts.lines(study_tables.lines(own)).spec
    assert lines["layer"][0]["encoding"]["x"]["scale"]["domain"] == [0, 1]
    assert study_tables.curves([], [], "heads").empty
