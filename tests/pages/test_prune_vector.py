"""The panel of Prune that adds a function vector says what the command says."""

import json
import shlex

import pytest

from engine.__main__ import main
from pages.ui.page.tables import percent
from pages.ui.prune.panels import vector
from tests.engine.fixtures import WORD_PAIRS
from tests.pages.conftest import press


@pytest.mark.slow("scores every head of a model, and runs two commands")
def test_the_accuracy_with_a_vector_is_that_of_the_command(open_app, capsys, monkeypatch):
    for of in ("engine.heads.function_vectors", "engine.requests.vectors", "pages.ui.prune.panels.vector"):
        monkeypatch.setattr(f"{of}.included_tasks", lambda folder: [WORD_PAIRS])
    monkeypatch.setattr("engine.heads.function_vectors.N_CLEAN", 2)
    monkeypatch.setattr("engine.heads.function_vectors.N_SHUFFLED", 1)
    monkeypatch.setattr(vector, "pairs_of", lambda x: WORD_PAIRS.name)
    at = open_app(prune_vector="true", prune_shots="1", prune_mask="L0H1")
    at = press(at, "Measure with the vector")
    [rows] = [each.value for each in at.dataframe if "Prompt" in each.proto.columns]
    words = next(shlex.split(each.value) for each in at.code if "--add-vector" in each.value)
    assert words[words.index("--add-vector") + 1] == WORD_PAIRS.name and "L0H1" in words
    assert main([*words[1:], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    del words[words.index("--add-vector") : words.index("--add-vector") + 2]
    assert main([*words[1:], "--json"]) == 0
    without = json.loads(capsys.readouterr().out)
    shown = dict(zip(rows["prompt"], rows["acc"], strict=True))
    assert told["cached"] and without["cached"], "what the panel has measured"
    assert (shown[vector.WITHOUT], shown[vector.WITH]) == (without["acc"], told["acc"])
    assert [*shown] == [vector.WITHOUT, vector.WITH, "1 example"]
    layer = next(each.value for each in at.markdown if each.value.startswith("With the vector"))
    assert f"{WORD_PAIRS.name}@{told['vector_layer']}: **{percent(told['acc'])}**" in layer
    at = open_app(prune_story="Add a vector", prune_shots="1", prune_mask="L0H1")
    told_by_story = next(each.value for each in at.markdown if each.value.startswith(":small[With the vector"))
    assert told_by_story == f":small[{' '.join(layer.split('  ' + chr(10)))}]"
