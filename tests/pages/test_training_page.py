"""The Training screen, on runs made by hand: what it draws, what it says, and what its address holds."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from engine.errors import HeadroomError
from engine.models.loading import LoadSpec
from engine.requests import MeasureTrajectory
from engine.training.trajectory import encode
from engine.views.training import trajectory_view
from pages.ui.controls.model import snapshot_in_words
from pages.ui.downloads import actions
from pages.ui.training import charts, runs, slider
from tests import synthetic_runs
from tests.engine.fixtures import foreign_run
from tests.pages.conftest import charts_of

PAIR = {"training_run": "2-layers", "training_control": "1-layer"}
FOLDED = ("gain", "passage", "own")


@pytest.fixture
def open_training(open_app, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "SHIPPED", tmp_path)
    for each in synthetic_runs.runs():
        (tmp_path / f"{each.name}.safetensors").write_bytes(encode(each))

    return partial(open_app, "training")


def folded(at):
    """The parts of the screen that are folded, by key."""
    return [each.key for each in at.expander if str(each.key).startswith("training_")]


def test_the_screen_opens_with_its_finding_two_columns_of_charts_and_few_controls(open_training):
    at = open_training(**PAIR)
    assert not at.error and not at.exception
    assert len(charts_of(at)) == 2 * 2, "copies and prefix matching of each run"
    [said] = [each.value for each in at.markdown if each.value.startswith("#### ")]
    assert (
        said
        == "#### **Induction heads form at 2.1 M tokens, and copying with them; the run with 1 layer has neither.**"
    )
    assert "The two runs differ only in the number of layers (2 and 1)." in [each.value for each in at.caption]
    assert folded(at) == [f"training_{section}" for section in FOLDED]
    primary = [each.label for each in at.button if each.proto.type == "primary"]
    assert primary[0] == "Train one now, about 58 s"
    own = [each for each in (*at.selectbox, *at.button) if str(each.key).startswith(("training_", "train "))]
    assert len(own) == 3, "next to slider and Play"


def test_downloads_have_the_charts_and_the_command_of_both_runs(open_training, monkeypatch):
    handed = []
    monkeypatch.setattr(actions, "_draw", lambda files, link: handed.append(files))
    open_training(**PAIR)
    assert len(handed[-1].sheet.pictures) == 4 and len(handed[-1].sheet.tables) == 4
    for name in handed[-1].sheet.pictures:
        assert charts.MOMENT not in json.dumps(handed[-1].sheet.picture(name).template)
    [request] = handed[-1].origin.requests
    result = MeasureTrajectory(series=request.series, control=request.control).run()
    assert [result.view.finding] == handed[-1].sheet.says and result.fields["control"]["name"] == "1-layer"


def test_everything_unfolded_draws_in_context_gain_and_a_passage_and_a_move_leaves_charts_alone(open_training):
    at = open_training(**PAIR, training_gain="true", training_passage="true", training_own="true")
    assert not at.error and not at.exception
    assert len(charts_of(at)) == 2 * 3
    assert [each.value for each in at.caption if each.value.startswith("2 layers: Phase change from ")]
    assert [each.label for each in at.button if each.label.startswith("Train: ")]
    live = [spec for spec in charts_of(at) if "bind" in str(spec.get("params"))]
    assert len(live) == len(charts_of(at)), "a chart does not hear of the moment"
    before = [chart.proto.spec for chart in at.get("vega_lite_chart")]
    assert at.text_input(key="training_tokens").value == ""
    at.text_input(key="training_tokens").set_value("3000000").run()
    assert [chart.proto.spec for chart in at.get("vega_lite_chart")] == before, "a move would draw charts anew"


def test_an_address_with_a_control_of_the_passage_unfolds_it(open_training):
    at = open_training(**PAIR, training_text="By hand")
    assert at.session_state["training_passage"] and not at.session_state["training_gain"]


def test_runs_that_read_no_text_offer_two_that_did(open_training, tmp_path):
    unread = np.full(20, np.nan, np.float32)
    found = replace(synthetic_runs.trajectory("random", 1e6), icl=unread, loss=unread, passages={})
    (tmp_path / "random.safetensors").write_bytes(encode(found))
    for name, made in zip(runs.ON_TEXT, synthetic_runs.runs()[1:], strict=True):
        (tmp_path / f"{name}.safetensors").write_bytes(encode(made))
    at = open_training(training_run="random", training_control="none", training_gain="true")
    assert len(charts_of(at)) == 2 and folded(at) == ["training_own"]
    at.button(key="on text").click().run()
    assert at.selectbox(key="training_run").value == "smeared" and len(charts_of(at)) >= 4
    assert folded(at) == [f"training_{section}" for section in FOLDED]


def test_an_address_that_cannot_be_is_put_right(open_training):
    at = open_training(training_tokens="-5", training_run="nobody", training_control="2-layers")
    assert not at.error and at.text_input(key="training_tokens").value == "0"
    assert at.selectbox(key="training_run").value == "1-layer-smeared"
    assert at.selectbox(key="training_control").value == "2-layers"


def test_the_embedded_models_own_run_opens_the_embedded_model_and_the_slider_leaves_it_alone(open_training, tmp_path):
    own = {"trainer": "making", "label": "the embedded model (8 layers, OPT)", "words": "books and half repeats",
           "n_layers": 8, "mlp": True, "smeared": False, "tokens": 4_000_000}  # fmt: skip
    made = replace(synthetic_runs.trajectory("embedded", 2e6, n_layers=6), label=own["label"], recipe=own)
    (tmp_path / "embedded.safetensors").write_bytes(encode(made))
    found = runs.sources(tmp_path / "none")
    source = found["embedded"]
    assert runs.snapshot_at(source, 0) == ("demo", made.tokens[-1]) and runs.snapshot_at(found["2-layers"], 0) is None
    at = open_training(training_run="embedded", training_control="none")
    assert not at.error and not at.exception
    model = at.session_state["model"]
    at.session_state["training drag"] = {"hand": {"tokens": 960_000, "number": 1}}
    at.text_input(key="training_tokens").set_value("960000").run()
    assert at.session_state["model"] == model != "demo", "the slider changed the model of all screens"
    opens = at.button(key="training take model")
    assert opens.label == "Open the embedded model \\(8 layers, OPT\\) at 4 M tokens on all screens"
    opens.click().run()
    assert at.session_state["model"] == "demo"
    assert [
        each.value for each in at.caption if each.value.startswith(":material/check: All screens show the embedded")
    ]
    assert not [each for each in at.button if each.key == "training take model"]


def test_a_run_of_another_trainer_has_no_log_that_can_be_drawn(tiny_opt, tmp_path):
    run = foreign_run(tmp_path / "runs" / "other", tiny_opt, (0, 8))
    source = runs.sources(tmp_path / "runs")["other"]
    assert runs.trajectory_of(source) is None and source.series == str(run.folder)
    assert runs.snapshot_at(source, 700) == (f"{run.folder}@step8", 800)
    told = snapshot_in_words(LoadSpec(f"{run.folder}@step8"))
    assert told == "Snapshot step8, the run's last; 0.00 M tokens read. a model of ours (2 layers, OPT)"


def test_a_damaged_record_is_one_line(tmp_path):
    source = runs.RunSource("own", tmp_path / "own.safetensors")
    assert runs.trajectory_of(source) is None
    source.record.write_bytes(b"no record")
    with pytest.raises(HeadroomError, match="not a trajectory file"):
        runs.trajectory_of(source)


def test_the_marker_is_a_line_on_the_chart_which_is_faint_after_it():
    found = synthetic_runs.trajectory("2-layers", 2e6)
    picture = trajectory_view(found).parts[0].picture()
    marked = charts.with_marker(picture).template["layer"]
    assert [each["mark"]["type"] for each in marked] == ["rect", "line", "line", "rule"]
    assert marked[1]["encoding"]["opacity"] == {"value": charts.LATER}
    assert marked[2]["transform"][0] == {"filter": "datum.tokens <= toNumber(moment)"}


@pytest.mark.parametrize(("said", "tokens"), [("", 4e6), ("960000", 960e3)])
def test_the_slider_stands_where_the_address_says_or_at_the_end_of_the_longest_run(said, tokens, monkeypatch):
    monkeypatch.setattr(slider.st, "session_state", {slider.KEY: said})
    assert slider.moment(synthetic_runs.runs()) == tokens


def test_a_run_in_the_folder_with_the_name_of_one_of_the_app_is_told_apart(monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "SHIPPED", tmp_path)
    (tmp_path / "smeared.safetensors").touch()
    assert runs.own_name(Path("/home/runs/smeared")) == "smeared (own)" and runs.own_name(Path("a,b")) == "a b"
