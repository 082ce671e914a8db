"""`headroom vector` prints what a function vector does, and writes a row per layer and split."""

import pandas as pd
import pytest

from engine.heads import function_vectors
from engine.requests import vectors
from tests.engine.fixtures import WORD_PAIRS


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """A CSV file of word pairs, and fewer prompts than usual."""
    monkeypatch.setattr(function_vectors, "N_CLEAN", 2)
    monkeypatch.setattr(function_vectors, "N_SHUFFLED", 1)
    for module in (function_vectors, vectors):
        monkeypatch.setattr(module, "included_tasks", lambda folder: [WORD_PAIRS])
    file = tmp_path / "pairs.csv"
    rows = [f"{pair.question},{pair.answer}" for pair in WORD_PAIRS.pairs]
    file.write_text("\n".join(["number,word", *rows]), encoding="utf-8")
    return file


def test_the_command_prints_the_lift_and_writes_the_layers(tiny_opt, tmp_path, cli, told, pairs):
    options = ("--model", tiny_opt, "--precision", "fp32", "--pairs", pairs)
    found = told("vector", *options, "--out", tmp_path / "layers.csv")
    rows = pd.read_csv(tmp_path / "layers.csv")
    assert rows["layer"].tolist() == [0, 1, 0, 1] and rows["split"].tolist() == ["train"] * 2 + ["test"] * 2
    at_best = rows[(rows["split"] == "test") & (rows["layer"] == found["best_layer"])]["acc"].item()
    assert found["switched"] == pytest.approx(100 * at_best) and found["task"] == "number-word"
    assert found["lift_points"] == pytest.approx(found["switched"] - found["zero"])
    code, printed, _ = cli("vector", *options)
    assert code == 0 and "lift accuracy" in printed and f"{found['lift_points']:.1f} points" in printed
    code, _, lines = cli("vector", *options, "--task", "magic")
    assert code == 2 and "task 'magic' has no word pairs; choose one of number-word" in lines[0]


def test_a_prompt_gets_the_vector_at_each_layer_and_is_continued_with_it(tiny_opt, tmp_path, cli, told, pairs):
    options = ("--model", tiny_opt, "--precision", "fp32", "--prompt", "one two")
    without, *at_layers = told("vector", *options, "--pairs", pairs)["guesses"]
    assert without["layer"] is None and [row["layer"] for row in at_layers] == [0, 1]
    more = ("--add-vector", f"{WORD_PAIRS.name}@1", "--tokens", "1", "--out", tmp_path / "text.csv")
    found = told("continue", *options, *more)
    likeliest = max(found["next"], key=lambda row: row["vector"])
    assert (likeliest["token"], likeliest["vector"]) == (at_layers[1]["token"], pytest.approx(at_layers[1]["p"]))
    assert found["said"]["vector"] == likeliest["token"] and found["vector_layer"] == 1
