"""`Result.chart()`: drawn from a result's numbers, with a title that names the unit on each axis and legend."""

import re

import numpy as np
import pytest
import vl_convert

import headroom
from engine import demo
from engine.requests import REQUESTS

TASK = {"task": "demo_copy", "limit": 4}
TEXT = {"passage": "Privet Drive, twice"}
SHORT = {"text": "a file of a few words"}  # where the chart has a row for each two tokens
RECORD = str(demo.runs_folder() / "smeared.safetensors")
# of a request: its settings, the titles of its chart, and the column of its table that the chart shows
DRAWN = {
    "Evaluate": (TASK | {"against": "bf16"}, ["Questions right (95% interval)", "Model"], "acc"),
    "ScoreImportance": (TASK, ["Head", "Layer", "heads, no unit"], "score"),
    "ScoreInduction": ({}, ["Head", "Layer", "Prefix matching, share"], "prefix_matching"),
    "ScoreLayers": (TASK, ["Accuracy lost without it", "Layer"], "accuracy_lost"),
    "AblateHeads": (TASK | {"best": 2}, ["Points lost (95% interval)", "Heads removed"], "lost"),
    "CompareCriteria": (
        TASK | {"criteria": "weight", "levels": "0,50", "random_orders": 1, "order_questions": 4},
        ["Heads pruned", "Questions right", "Order"],
        None,
    ),
    "MeasureLosses": (TEXT | {"mask": "L1H1"}, ["Token index (log scale)", "Loss, nats", "Model"], None),
    "AttributeHeads": (
        {"from_task": "demo_copy", "texts": 1},
        ["Change of the in-context score without it, nats"],
        "icl_score_change_nats",
    ),
    "ContinuePrompt": ({"prompt": "a b", "mask": "L1H1", "tokens": 1}, ["Probability", "Next token (model)"], None),
    "MeasureAttention": (SHORT | {"heads": "L1H1"}, ["Token looked at", "Token that looks", "Attention"], None),
    "MeasureLens": (TEXT, ["Next token is the likeliest", "After layer"], None),
    "IdealizeHeads": (TEXT | {"heads": "L1H1"}, ["Share of the effect recovered (95% interval)", "Pattern"], None),
    "MeasurePerplexity": (TEXT, ["Perplexity a token", "Model"], None),
    "MeasureSpeed": ({"mask": "L1H1"}, ["Pruned divided by full", "Quantity"], "ratio"),
    "Correlate": (
        {"tasks": "demo_copy,demo_outfit", "shots": "0", "order_questions": 4},
        ["Ranking", "Rank correlation, −1 to 1"],
        "srcc",
    ),
    "Sweep": (
        {"tasks": "demo_copy", "shots": "0", "head_levels": "0,50", "order": "random", "limit": 4},
        ["Heads pruned", "Questions right", "Task"],
        "acc",
    ),
    "ComparePrecisions": (
        TASK | TEXT | {"reference": "bf16", "also": "", "order_questions": 4},
        ["Head", "Layer", "Difference of its output"],
        "disturbed",
    ),
    "CompareMechanisms": (
        {"tasks": "demo_copy", "kinds": "induction", "shares": "10", "limit": 4, "order_questions": 4},
        ["Gain from examples lost, points (95% interval)", "Heads removed"],
        "points_lost",
    ),
    "PatchPrompts": (
        {"prompt": "a b a", "other_prompt": "b a b", "answers": "a,b"},
        ["Token of the prompts", "Layer", "Share of the difference"],
        "effect",
    ),
    "ReadCorpus": (SHORT | {"windows": 2, "length": 16}, ["Head", "Layer", "After earlier copies"], "induction"),
    "MeasureTrajectory": ({"series": RECORD}, ["Training tokens", "Loss, nats"], None),
}
WITHOUT = {
    "CheckPublished", "ReportHead", "ExportModel", "TrainModel", "ManageStore",
    "ListTasks", "ListModels", "Diagnose", "ShowFindings", "JudgeRuns",
}  # fmt: skip
OF_VECTORS = "SwitchTaskOn"


def drawn(chart):
    """(the titles of axes and legends in the drawing, the rows of its data)."""
    spec = chart.to_dict()
    svg = vl_convert.vegalite_to_svg(spec)
    titles = {*re.findall(r"(?:-axis|legend) titled '(.*?)' for", svg)}
    assert titles and "undefined" not in titles
    return titles, [row for values in rows_in(spec) for row in values]


def rows_in(spec):
    if isinstance(spec, dict):
        yield from spec.get("datasets", {}).values()
        if isinstance(values := spec.get("values"), list) and spec.keys() == {"values"}:
            yield values
        for each in spec.values():
            yield from rows_in(each)
    elif isinstance(spec, list):
        for each in spec:
            yield from rows_in(each)


def test_every_request_has_a_chart_or_is_known_to_have_none():
    assert {*DRAWN, *WITHOUT, OF_VECTORS} == {request.__name__ for request in REQUESTS}


@pytest.mark.slow("runs a request on the tiny model")
@pytest.mark.parametrize("name", DRAWN)
def test_the_chart_of_a_request_shows_its_numbers_with_units(name, session, wide_opt, tmp_path):
    settings, titles, column = DRAWN[name]
    if "text" in settings:
        (file := tmp_path / "text.txt").write_text("The river was low that summer. " * 8)
        settings = settings | {"text": str(file)}
    of_model = {} if name == "MeasureTrajectory" else {"model": str(wide_opt), "precision": "fp32"}
    result = getattr(headroom, name)(**of_model, **settings).run(session)
    found, rows = drawn(result.chart())
    assert {*titles} <= found
    if column:
        shown = [row[column] for row in rows if column in row] or [[*row.values()][-1] for row in rows]
        expected = np.unique(result.frame()[column].dropna())  # a matrix shows the pair of a and b twice
        assert np.allclose(np.unique([each for each in shown if each is not None])[-len(expected) :], expected)


def test_a_result_without_a_chart_names_its_table():
    with pytest.raises(headroom.HeadroomError, match=r"no chart; \.frame\(\) gives its table"):
        headroom.ListTasks().run().chart()
