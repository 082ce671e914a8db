"""Training beside the app: a process of its own that tells how it goes, stops when it is told to, and goes on."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from engine.errors import HeadroomError
from engine.training import live
from engine.training.folders import open_run
from engine.training.live import LOADING, READING, free_name, trained
from engine.training.locking import trainer
from engine.training.recipe import Recipe
from engine.training.running import begin
from tests.engine.fixtures import refused_by, write_words

LONG = Recipe(1, 2, 16, 16, smeared=True, n_vocab=280, batch=4, tokens=64 * 800, snapshots=4)


@pytest.fixture
def text(tmp_path):
    """A file of words."""
    return write_words(tmp_path / "text", 1, 40_000) / "0.txt"


def test_stopped_and_started_it_goes_on_to_its_end(text, tmp_path):
    """With the weights of a run that was left alone: tests/cli/test_train_command.py."""
    steps, said = trained(tmp_path / "run", LONG, text), []
    for step in steps:
        said.append(step)
        if step.done:
            break
    first = next(step for step in said if step.value is not None)
    assert said[0].message == LOADING and not first.done and READING in [step.message for step in said]
    line = open_run(tmp_path / "run").log()[0]
    for name in ("step", "tokens", "first_copy", "second_copy", "prefix_matching", "previous_token"):
        assert np.allclose(first.value[name], line[name], atol=2e-4), name
    assert math.isnan(first.value["loss"]) and math.isnan(first.value["icl"]), "no text is read yet"
    assert "best prefix matching" in said[-1].message and said[-1].total == LONG.tokens
    busy = trainer(tmp_path / "run")
    assert busy is not None
    steps.close()
    assert trainer(tmp_path / "run") is None and (tmp_path / "run" / "state.pt").is_file(), "nothing done is lost"
    last = list(trained(tmp_path / "run", LONG, text))[-1]
    assert last.value == open_run(tmp_path / "run") and last.value.is_done


def test_what_is_wrong_is_one_line(tmp_path, monkeypatch):
    with pytest.raises(HeadroomError, match="gone does not exist; give a folder"):
        list(trained(tmp_path / "run", LONG, tmp_path / "gone"))
    monkeypatch.setattr(live, "CODE", tmp_path)
    with pytest.raises(HeadroomError, match="has ended .*No module named .*start it again"):
        list(trained(tmp_path / "run", LONG))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    refused_by(HeadroomError, r"has ended \(1\)", lambda: list(trained(tmp_path / "run", LONG)))


def test_a_name_that_is_taken_gets_a_number(text, tmp_path):
    assert free_name(tmp_path, "words", LONG) == tmp_path / "words"
    (tmp_path / "words").mkdir()
    assert free_name(tmp_path, "words", LONG) == tmp_path / "words-2"
    short = replace(LONG, tokens=64 * 4)
    begin(tmp_path / "own", short, text)
    assert free_name(tmp_path, "own", short) == tmp_path / "own-2", "it reads a text of its own"
