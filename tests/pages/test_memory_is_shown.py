"""The sidebar says how much memory the app holds, and how much of it is the model."""

import re
from types import SimpleNamespace

import psutil
import pytest

from pages.ui.controls import sidebar
from pages.ui.page import runtime


def shown(at):
    [line] = [each.value for each in at.sidebar.caption if each.value.startswith("This app holds")]
    return line


def test_memory_before_and_with_a_model(open_app):
    at = open_app(run=False).run()
    line = shown(at)
    assert runtime.session().models.loaded is not None or "model" not in line
    held_gb = psutil.Process().memory_info().rss / 1e9
    assert abs(float(re.match(r"This app holds ([\d.]+) GB", line)[1]) - held_gb) < 0.4
    at = open_app()
    assert re.fullmatch(r"This app holds [\d.]+ GB: model under 0.1, the rest [\d.]+", shown(at))


@pytest.mark.parametrize("place", ["", "cpu:1,disk"])
def test_where_layers_lie_is_shown_with_what_it_costs(place, open_app, monkeypatch):
    monkeypatch.setenv("HEADROOM_PLACE", place)
    lines = [(each.value, each.help) for each in open_app().sidebar.caption if each.value.startswith("Layers")]
    costs = r"Each pass reads 0\.0\d+ MB from disk, about [\d.e-]+ s at the .+/s measured here, less where the system "
    costs += r"still holds them in memory\. "
    assert len(lines) == bool(place), "of a model in one piece nothing is said"
    if place:
        [(line, help)] = lines
        assert line == "Layers 0 in main memory, 1 on disk" and re.match(costs, help), lines


def test_the_parts_are_the_model_and_the_rest(monkeypatch):
    held = SimpleNamespace(
        device="cpu",
        spec=SimpleNamespace(precision="int8"),
        identity=SimpleNamespace(weight_bytes={"int8": 163_000_000, "fp32": 538_000_000}.__getitem__),
        placing=SimpleNamespace(disk_bytes=0),
    )
    models = SimpleNamespace(loaded=held, beside=None)
    monkeypatch.setattr(sidebar, "session", lambda: SimpleNamespace(models=models))
    monkeypatch.setattr(sidebar, "resident_bytes", lambda: 1_240_000_000)
    assert sidebar.memory_in_words() == "This app holds 1.2 GB: model 0.2, the rest 1.1"
    held.spec.precision = "fp32"
    assert sidebar.memory_in_words() == "This app holds 1.2 GB: model 0.5, the rest 0.7"
    held.placing.disk_bytes = 400_000_000
    assert sidebar.memory_in_words() == "This app holds 1.2 GB: model 0.1, the rest 1.1", "what is on disk is not held"
    held.device = "cuda"
    assert sidebar.memory_in_words() == "This app holds 1.2 GB", "the model lies elsewhere"
    models.loaded = None
    assert sidebar.memory_in_words() == "This app holds 1.2 GB"
