"""`headroom mechanisms` prints what each kind of heads costs, and writes a row per set of heads."""

import pandas as pd
import pytest

from tests.engine.fixtures import write_questions


def test_the_command_prints_the_kinds_and_writes_the_rows(tiny_opt, tmp_path, cli):
    task = write_questions(tmp_path / "own.jsonl")
    options = ("--model", tiny_opt, "--precision", "fp32", "--tasks", task, "--shots", "1", "--limit", "8")
    more = ("--kinds", "induction,importance", "--order-questions", "8", "--random-sets", "1", "--shares", "10")
    code, printed, lines = cli("mechanisms", *options, *more, "--out", tmp_path / "rows.csv")
    assert code == 0, lines
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert rows["kind"].tolist() == ["induction", "importance", "random"] and rows["n_heads"].tolist() == [1, 1, 1]
    assert "Heads of each kind:" in printed and "points from 1 example:" in printed
    labels = ("--labels", "unrelated", *more[:1], "induction", *more[4:])
    code, printed, _ = cli(
        "mechanisms", *options[:4], "--tasks", "demo_outfit", "--shots", "1", "--limit", "8", *labels
    )
    assert code == 0 and "1 example, unrelated labels" in printed
    code, _, lines = cli("mechanisms", *options, "--series", "runs/curriculum")
    assert code == 2 and "leave out --model" in lines[0]
    for more in (("--exclusive",), ("--kinds", "importance"), ("--series", "runs/curriculum")):
        code, _, lines = cli("mechanisms", *options, "--by-sign", *more)
        assert code == 2 and "--by-sign has kinds of its own" in lines[0]
    code, _, lines = cli("mechanisms", *options, "--kinds", "magic")
    assert code == 2 and "kind 'magic' is unknown" in lines[0]


@pytest.mark.slow("loads two snapshots of the included run and scores the heads of both")
def test_a_series_tells_at_which_step_each_kind_comes(tmp_path, told, cli):
    task = write_questions(tmp_path / "own.jsonl")
    series = ("--series", "runs/curriculum@step{2930,9765}", "--tasks", task, "--shots", "1", "--limit", "4")
    more = ("--kinds", "induction,function vector", "--random-sets", "1", "--shares", "10")
    found = told("mechanisms", *series, *more, "--out", tmp_path / "rows.csv")
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert {*rows["step"]} == {2930, 9765} == {*map(int, found["gain_points"])}
    of_kind = rows[rows["kind"] == "induction"].set_index("step")["score"]
    half = found["kinds"]["induction"]["half_of_highest_score"]
    assert half == min(step for step, score in of_kind.items() if score >= of_kind.max() / 2)
    _, printed, _ = cli("mechanisms", *series, *more)
    assert "Half of its highest score from step" in printed and printed.count("9,765") >= 1
