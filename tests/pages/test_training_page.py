"""The Training screen, on runs made by hand: what it draws, what it says, and what its address holds."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from engine.models.loading import LoadSpec
from engine.progress import final
from engine.training.findings import findings
from engine.training.trajectory import encode
from pages.ui.controls import sidebar
from pages.ui.downloads import footer
from pages.ui.page.tables import number
from pages.ui.training import charts, measuring, runs, sections, slider, tables
from pages.ui.training.finding import finding, formed_at
from tests import synthetic_runs
from tests.engine.fixtures import foreign_run
from tests.pages.conftest import charts_of, frames_of

NOWHERE = runs.RunSource("", Path())


@pytest.fixture(scope="module")
def shown():
    found = {each.name: each for each in synthetic_runs.runs()}
    told = runs.labels(found, {name: runs.recipe_in(NOWHERE, each) for name, each in found.items()})
    return runs.shown(list(found), told, found)


@pytest.fixture
def open_training(open_app, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "SHIPPED", tmp_path)
    for each in synthetic_runs.runs():
        (tmp_path / f"{each.name}.safetensors").write_bytes(encode(each))

    return partial(open_app, "training")


FOLDED = ("slopes", "previous", "losses", "passage", "carriers", "paths", "statements")


def unfolded(*sections):
    return {f"training_{section}": "true" for section in sections}


def test_the_screen_opens_with_its_finding_and_two_rows_of_charts(open_training):
    at = open_training()
    assert not at.error and not at.exception
    assert len(charts_of(at)) == 2 * 3, "in-context gain and prefix matching of each run"
    [words] = [each for each in at.markdown if "in the phase change (" in each.value]
    assert words.value.count("phase change") == 2 and words.value.endswith("; its gain ends at +0.05.")
    assert [each.key for each in at.expander if each.key] == [f"training_{section}" for section in FOLDED]
    primary = [each.label for each in at.button if each.proto.type == "primary"]
    assert primary[0] == "Train two tiny models live, about 2 min"


def test_the_loss_along_the_text_is_folded_and_yet_in_the_downloads(open_training, monkeypatch):
    handed = []
    monkeypatch.setattr(footer, "_draw_files", handed.append)
    assert not [rows for rows in frames_of(open_training()) if "cells" in rows]
    sheet = handed[-1].sheet
    assert len(sheet.picture("d loss by d ln(index) over training").template["concat"]) == 3
    assert sheet.tables["Slopes by index"]["run"].nunique() == 3
    at = open_training(**unfolded("slopes"))
    assert len([rows for rows in frames_of(at) if "cells" in rows]) == 3
    for spec in charts_of(at)[-3:]:
        words = json.dumps(spec)
        assert '"Token index"' in words and '"nats / ln(index)"' in words, "named axis and color scale"


def test_an_address_with_a_control_of_the_passage_unfolds_it(open_training):
    at = open_training(training_tint="loss at the moment")
    assert at.segmented_control(key="training_tint").value == "loss" and at.session_state["training_passage"]
    assert not at.session_state["training_losses"]


def test_runs_without_loss_on_copies_are_drawn_next_to_their_twins(open_training, tmp_path):
    runs = [*synthetic_runs.runs(), *(synthetic_runs.trajectory(f"3-layers-{hapax}", None if hapax else 1e6, n_layers=3,
            seed=7, hapax=hapax) for hapax in (True, False))]  # fmt: skip
    assert not twin_frames(open_training(**unfolded("statements"))), "none has a twin"
    for each in runs[-2:]:
        (tmp_path / f"{each.name}.safetensors").write_bytes(encode(each))
    matching, gain = twin_frames(open_training(**unfolded("statements")))
    assert matching.equals(gain) and matching["seed"].tolist() == ["7", "7"]
    assert matching["copies"].tolist() == ["without loss on copies", "with it"]
    assert matching["gain_nats"].tolist() == pytest.approx([-each.icl[-1] for each in runs[-2:]])
    assert matching["matching"].tolist() == pytest.approx(
        [each.heads["prefix_matching"].max() for each in runs[-2:]], abs=1e-6
    )


def twin_frames(at):
    assert not at.error and not at.exception
    return [each["twins"] for each in frames_of(at) if "twins" in each]


def test_every_part_of_every_run_is_drawn_and_charts_are_left_alone_when_the_hand_lets_go(open_training):
    at = open_training(**unfolded(*FOLDED[:6]))
    assert not at.error and not at.exception
    # of each run: score, prefix matching, previous token, two tokens, slopes, path, and its ablations now and over
    # training, along the vector only where there is one; and two charts of all runs
    assert len(at.get("vega_lite_chart")) == 3 * 6 + 3 * 2 + 2 * 2 + 2
    live = [spec for spec in charts_of(at) if "bind" in str(spec.get("params"))]
    assert len(live) == len(charts_of(at)), "a chart does not hear of the moment"
    before = [chart.proto.spec for chart in at.get("vega_lite_chart")]
    assert at.text_input(key="training_tokens").value == ""
    at.text_input(key="training_tokens").set_value("3000000").run()
    assert [chart.proto.spec for chart in at.get("vega_lite_chart")] == before, "a move would draw charts anew"


def test_an_address_that_cannot_be_is_put_right(open_training):
    at = open_training(
        training_tokens="-5", training_axis="Sideways", training_runs="nobody,2-layers", training_token_a="x"
    )
    assert not at.error and at.text_input(key="training_tokens").value == "0"
    assert at.multiselect(key="training_runs").value == ["2-layers"]


def test_labels_say_the_share_of_repeats_and_what_sets_runs_apart():
    found = {each.name: each for each in (
        synthetic_runs.trajectory("plain"), synthetic_runs.trajectory("again", seed=1),
        synthetic_runs.trajectory("half", repeats=0.5), synthetic_runs.trajectory("copy", repeats=0.5))}  # fmt: skip
    told = runs.labels(found, {name: runs.recipe_in(NOWHERE, each) for name, each in found.items()})
    assert told["plain"] == "2 layers, attention only, no repeats, seed 0" and told["again"].endswith("seed 1")
    assert told["half"] == "2 layers, attention only, 50% repeats (half)", "two runs of one recipe"


def test_the_embedded_models_own_run_opens_the_embedded_model_and_the_slider_leaves_it_alone(open_training, tmp_path):
    own = {"trainer": "making", "label": "the embedded model (8 layers, OPT)", "words": "books and half repeats",
           "n_layers": 8, "mlp": True, "smeared": False, "tokens": 4_000_000}  # fmt: skip
    made = replace(synthetic_runs.trajectory("embedded", 2e6, n_layers=6), label=own["label"], recipe=own)
    (tmp_path / "embedded.safetensors").write_bytes(encode(made))
    found = runs.sources(None)
    source = found["embedded"]
    assert list(found)[0] == "embedded" and source.folder is None and source.has_weights
    assert runs.snapshot_at(source, 0) == (made.steps[-1], made.tokens[-1]) and runs.typed(source, 1) == "demo"
    assert not found["2-layers"].has_weights and runs.snapshot_at(found["2-layers"], 0) is None
    at = open_training(training_runs="embedded,2-layers")
    said = [each.value for each in at.caption]
    assert not at.error and not at.exception
    assert "The embedded model \\(8 layers, OPT\\): books and half repeats." in said
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
    told = {each.text: each for each in findings([made, *synthetic_runs.runs()])}
    law = next(each for text, each in told.items() if "10^5.7" in text)
    # its steps' sizes are not told: those of 1,024 tokens until then, which the record has
    assert f"{own['label']}: 16.0 M said, 1.9 M seen" in law.ours


@pytest.mark.slow("measures two snapshots without each of their heads")
def test_a_run_of_another_trainer_in_the_folder_can_be_measured(tiny_opt, tmp_path, session):
    run = foreign_run(tmp_path / "runs" / "other", tiny_opt, (0, 8))
    source = runs.sources(tmp_path / "runs")["other"]
    assert runs.labels({"other": None}, {"other": runs.recipe_in(source, None)}) == {"other": "other"}
    assert measuring.takes_s(source) > 0 and runs.snapshot_at(source, 700) == (8, 800)
    name = runs.typed(source, 8)
    assert name == f"{run.folder}@step8"
    told = sidebar.snapshot_in_words(LoadSpec(name))
    assert told == "Snapshot step8, the run's last; 0.00 M tokens read. a model of ours (2 layers, OPT)"
    assert runs.trajectory_of(source) is None
    found = final(measuring.measure(source, session))
    assert np.array_equal(runs.trajectory_of(source).loss, found.loss) and len(found.ablated) == 2


def test_tables_hold_the_runs_numbers(shown):
    _, smeared, plain = shown
    assert shown[0].window is None and abs(plain.window.start + plain.window.end - 4e6) < 1e6
    every = tables.over_training(shown)
    of = every[every["run"] == plain.label]
    assert np.allclose(of["gain"], -plain.trajectory.icl) and np.allclose(of["loss"], plain.trajectory.loss)
    assert (of["since"].to_numpy()[1:] == of["until"].to_numpy()[:-1]).all(), "each moment has one snapshot"
    heads = tables.head_scores(plain, "prefix_matching").set_index(["tokens", "layer", "head"])["value"]
    for at, layer, head in ((0, 0, 0), (7, 1, 1), (19, 1, 3)):
        tokens = plain.trajectory.tokens[at]
        assert heads[tokens, layer, head] == plain.trajectory.heads["prefix_matching"][at, layer, head]
    ablated = tables.ablations(smeared)
    induction = ablated[(ablated["kind"] == "induction") & (ablated["tokens"] > smeared.window.end)]
    assert set(induction["name"]) == {"L0H1"} and (induction["along"] < 0).all() and (induction["score"] > 0.2).all()
    change = tables.change(plain, "By hand")
    again = change["piece"].duplicated()
    assert change["change"][again].mean() < change["change"][~again].mean() - 0.3


def test_a_marker_in_a_file_stands_where_it_stood(shown):
    view = sections.TrainingFrames.of(shown, False, 2.5e6)
    still = sections.gain_panel(view, shown[2], view.still)
    assert "params" not in still.template and "2500000.0" in json.dumps(still.template)
    assert charts.MOMENT in json.dumps(sections.gain_panel(view, shown[2], view.look).template)


def test_the_finding_names_the_phase_change_and_when_heads_form(shown):
    one, smeared, plain = shown
    words = finding(shown)
    assert len(words) == 2 and words[0].startswith(f"**{smeared.label}: induction heads form at ")
    assert re.search(
        r"M tokens, and in the phase change \(.* M tokens\) the in-context gain rises by 0\.\d\d nats\.\*\*$", words[0]
    )
    end = number(-float(one.trajectory.icl[-1]), sign=True)
    assert words[1] == f"{one.label}: induction heads never form, and there is no phase change; its gain ends at {end}."
    best = plain.trajectory.heads["prefix_matching"].max(axis=(1, 2))
    assert formed_at(plain) == plain.trajectory.tokens[np.flatnonzero(best >= best.max() / 2)[0]]
    assert formed_at(one) is None
    assert finding([one])[0] == "**None of these runs has a phase change.**"


def test_charts_name_where_the_repeats_and_a_shorter_run_end(shown):
    one, _, plain = shown
    x = plain.trajectory
    longer = replace(one.trajectory, tokens=2 * one.trajectory.tokens)
    shorter = replace(plain, trajectory=replace(x, recipe={**x.recipe, "repeats": 0.75, "repeats_until": 0.5}))
    view = sections.TrainingFrames.of([shorter, replace(one, trajectory=longer)], False, 1e6)
    at = [(row.start, row.what) for row in view.windows.itertuples() if row.run == plain.label and row.start == row.end]
    assert at == [(2e6, "repeats end"), (4e6, "run ends at 4 M tokens")]
    assert [*view.windows["run"]].count(one.label) == 0, "the longest run ends with the axis"


@pytest.mark.parametrize(("said", "tokens"), [("", 4e6), ("960000", 960e3)])
def test_the_slider_stands_where_the_address_says_or_at_the_end_of_the_longest_run(said, tokens, shown, monkeypatch):
    monkeypatch.setattr(slider, "unseen_field", lambda *of: said)
    assert slider.moment(shown) == tokens
