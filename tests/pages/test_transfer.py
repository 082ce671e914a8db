"""What the order of another task costs in the report of a paper study: the rows and the sentence."""

from dataclasses import replace

from engine.questions.rendering import TaskSpec
from engine.studies.sweeps import Point, SweepRow
from pages.ui.paper_report import transfer_in_words, transfer_rows

TASKS = [TaskSpec(name, shots) for name in ("piqa", "copa") for shots in (0, 5)]


def row(task, heads, ffns, acc, by="own", of=""):
    return SweepRow(Point(task, heads, ffns, by, of), 100, acc, acc - 0.1, acc + 0.1, 0.25, heads // 100, 0, 0, 0, 1.0)


def test_transfer_is_against_the_tasks_own_ranking():
    own = [row(TASKS[0], 500, 0, 0.8), row(TASKS[2], 500, 0, 0.6)]
    others = [row(TASKS[0], 500, 0, 0.7, "task", "copa"), row(TASKS[0], 500, 0, 0.8, "task", "piqa"),
              row(TASKS[0], 500, 0, 0.75, "aggregate")]  # fmt: skip
    found = transfer_rows(others, own).set_index("source")
    assert found["lost"].round(6).to_dict() == {"copa": 10, "piqa": 0, "all tasks": 5}
    assert found["own"].to_dict() == {"copa": False, "piqa": True, "all tasks": False}
    assert "piqa loses **10 points** by the ranking of copa." in transfer_in_words(found.reset_index(), 0.5)
    assert not found["clear"].any() and transfer_rows([replace(others[0], high=0.65)], own)["clear"].all()
