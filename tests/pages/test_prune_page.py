"""The Prune screen end to end in one process: real controls, real threads, real tiny model, a user's own questions."""

import json
import math
import shlex
from collections import UserDict
from dataclasses import replace
from functools import partial
from inspect import getclosurevars
from itertools import count

import numpy as np
import pytest
import streamlit as st
from streamlit.runtime.scriptrunner import RerunData
from streamlit.testing.v1 import AppTest, local_script_runner

from engine import measurement
from engine.__main__ import main
from engine.accuracy.evaluation import Answers
from engine.importance import orders
from engine.measurement import Workload
from engine.models.masks import Mask
from engine.progress import Progress, in_time
from engine.questions.rendering import Question, render_questions
from engine.shapes import ModelShape
from engine.statistics import MIN_QUESTIONS, wilson
from engine.views.accuracy import standing
from engine.views.questions import choice_frame
from pages.ui.controls.study import apply_settings
from pages.ui.page import runtime as frame
from pages.ui.page.streamlit_internals import RunEnded
from pages.ui.prune import experiment, head_map
from tests.pages.conftest import (
    WAIT_S,
    N,
    button,
    charts_of,
    choose_story,
    command_of,
    components,
    experiment_of,
    figure,
    frames_of,
    job_states,
    labels,
    level,
    press,
    printed_by_the_program,
    said,
    same_on_the_command_line,
    sent,
    settled,
    slide,
    under_figure,
)


def test_the_full_model_is_measured_first_then_a_moved_slider_measures_the_pruned_one(measures_ahead, open_app, capsys):
    at = open_app()
    value, delta = figure(at)
    result = same_on_the_command_line(at, capsys)
    assert result["n"] == N and result["cached"], "the page and the command line must share their results"
    assert value == f"{100 * result['acc']:.1f}%"
    low, high = wilson(round(N * result["acc"]), N)
    assert delta == f"95% interval **{100 * low:.1f} to {100 * high:.1f}%**", "from few questions"
    assert f"of {N}** right" in under_figure(at)
    assert "0 of 8 heads, 0 of 2 FFNs pruned" in under_figure(at)
    assert len(charts_of(at)) == 1, "the curve; heads and FFNs are components"
    assert at.text_input(key="mask").placeholder == "such as L0H3 L1H* F1", "a model of 2 layers and 4 heads"
    x = experiment_of(at)
    known = replace(x, train=render_questions(replace(x.task, split="train"), None, frame.store())).known(
        frame.session()
    )
    assert known.heads is not None and known.ffns is not None, "so that a slider's first move can say something"
    assert x.at("heads", 500).mask(known).n_heads_pruned == 4
    assert "0 of 2 FFNs pruned. Top by " in map_of(at)["words"]
    slide(at, "heads", 50)
    slide(at, "ffns", 50)
    settled(at)
    value, _ = figure(at)
    assert " (95% " in under_figure(at) and "The full model: " in under_figure(at)
    assert "4 of 8 heads, 1 of 2 FFNs pruned" in under_figure(at)
    result = same_on_the_command_line(at, capsys)
    assert result["cached"] and value == f"{100 * result['acc']:.1f}%"
    assert (result["heads_pruned"], result["ffns_pruned"]) == (4, 1)
    assert printed_by_the_program(at).startswith(f"{value} right (95% ")


def is_gray(at):
    """Whether the large number is gray; it is drawn once."""
    ids = [block.proto.id for block in blocks(at._tree.main) if getattr(block.proto, "id", "")]
    [key] = {found for each in ids for found in ("prune_number_gray", "prune_number_sure") if found in each}
    return key == "prune_number_gray"


def blocks(block):
    """All containers in a container."""
    inner = [each for each in block.children.values() if hasattr(each, "children")]
    return [block, *(found for each in inner for found in blocks(each))]


def answers(n, right):
    """The answers to `n` questions, of which the first ones are right."""
    asked = tuple(Question(i, ("Q", "Q"), (" a", " b"), (0,), (2, 2), str(i)) for i in range(n))
    values = np.array([[0.0, -1.0] if i < right else [-1.0, 0.0] for i in range(n)])
    return Answers(asked, values, np.zeros((n, 2), bool), np.zeros(n, np.int32), False)


def draw_figure(shown):
    from pages.ui.prune.figure import draw_standing

    draw_standing("Copying", shown)


def figure_of(n_full, n_pruned, is_full):
    """The figure when so many of 100 questions are answered, all of them right."""
    pruned = answers(n_pruned, 100) if n_pruned else None
    shown = standing("copying", answers(n_full, 100), pruned, 100, "some pruned", is_full)
    return AppTest.from_function(draw_figure, args=(shown,)).run()


def test_the_full_model_is_never_shown_as_the_pruned_one():
    at = figure_of(4, 0, False)
    assert figure(at) == ("…", "not measured yet")
    assert "The full model: 100.0% of the first 4, 100 in all" in under_figure(at)


@pytest.mark.parametrize("n", [1, MIN_QUESTIONS - 1, MIN_QUESTIONS, 99, 100])
@pytest.mark.parametrize("is_full", [True, False])
def test_the_number_is_gray_with_its_interval_until_all_questions_are_answered(n, is_full):
    at = figure_of(n if is_full else 100, n, is_full)
    low, high = (f"{100 * end:.1f}" for end in wilson(n, n))
    value, delta = figure(at)
    assert not at.exception and is_gray(at) == (n < 100)
    assert value == (f"{n} of {n}" if n < MIN_QUESTIONS else "100.0%"), "not a share of the first few"
    interval = f"95% interval **{low} to {high}%**"
    assert (delta == interval) == (n < 100) and (interval in under_figure(at)) != (n < 100)
    before = "The full model: 100.0%" in under_figure(at)
    assert before == (n < 100 and not is_full), "which the change says otherwise"
    if n == 100:
        assert delta == ("the full model" if is_full else "0.0 points against the full model's 100.0%")


def test_a_slide_says_what_pruning_does_once_all_questions_are_answered():
    full = answers(100, 90)

    def finding(pruned, is_full=False):
        return standing("copy", full, pruned, 100, "4 of 8 heads pruned", is_full).finding

    lost = finding(answers(100, 30))
    assert lost.startswith("With 4 of 8 heads pruned, copy **lost 60.0 points (95% ")
    assert lost.endswith("**: 90.0% → 30.0% right.")
    assert "copy **within noise: lost 1.0 points (95% " in finding(answers(100, 89))
    assert not finding(full.first(99)) and not finding(None, True) == ""
    assert finding(None, True) == "The full model answers **90.0%** of copy right."


def click(at, name, number, pruned):
    """What the browser tells of a click on the map. Run the page afterwards."""
    parts = [map_of(at)["name"].index(name)]
    at.session_state["prune_map"] = {"edits": [{"number": number, "parts": parts, "pruned": pruned}]}
    return at


def map_of(at):
    """What the map shows."""
    [shown] = [each for each in components(at) if "outlined" in each]
    return shown


def test_a_click_on_the_map_prunes_and_restores_on_top_of_the_levels(open_app, capsys):
    at = open_app(order="random", heads="25")
    name = map_of(at)["name"][map_of(at)["pruned"].index(True)]
    settled(click(at, name, 1, False))
    assert at.text_input(key="mask").value == f"keep {name}"
    assert "1 of 8 heads, 0 of 2 FFNs pruned" in under_figure(at)
    result = same_on_the_command_line(at, capsys)
    assert result["cached"] and result["heads_pruned"] == 1 and name not in result["mask"].split()
    settled(click(at, name, 1, False))  # the same once more is the same click
    settled(click(at, "F1", 2, True))
    assert at.text_input(key="mask").value == f"F1 keep {name}"
    assert "1 of 8 heads, 1 of 2 FFNs pruned" in under_figure(at)
    settled(click(at, name, 3, True))
    assert at.text_input(key="mask").value == "F1"
    assert "2 of 8 heads, 1 of 2 FFNs pruned" in under_figure(at)
    result = same_on_the_command_line(at, capsys)
    assert result["cached"] and "F1" in result["mask"] and result["heads_pruned"] == 2
    # what a browser tells that is no click
    for told in ({"edits": 3}, {"edits": [{"number": "x"}]}, {"edits": [{"number": 4, "parts": [99], "pruned": True}]}):
        at.session_state["prune_map"] = told
        at.run()
        assert not at.exception and at.text_input(key="mask").value == "F1"


def test_a_browser_that_has_not_drawn_what_was_clicked_does_not_undo_it(open_app):
    at = open_app(order="random")
    click(at, "L1H1", 1, True).run()
    assert at.text_input(key="mask").value == "L1H1"
    at.text_input(key="mask").set_value("").run()  # what a timer's run brings along from before
    assert at.text_input(key="mask").value == "L1H1"


def test_the_next_click_keeps_one_that_the_browser_has_not_drawn(open_app, monkeypatch):
    at = open_app(order="random")
    click(at, "L1H1", 1, True).run()
    [of_map] = [
        key
        for key, run in at._fragment_storage._fragments.items()
        if getclosurevars(run).nonlocals["non_optional_func"].__name__ == "draw_fragment"
    ]
    click(at, "L0H1", 2, True)
    at.text_input(key="mask").set_value("")  # the browser had not drawn what the first click set
    with monkeypatch.context() as alone:  # a click runs only the part of the page that has the map
        alone.setattr(local_script_runner, "RerunData", partial(RerunData, fragment_id_queue=[of_map]))
        at.run()
    assert at.text_input(key="mask").value == "L0H1 L1H1"


class EndingState(UserDict):
    """A session state at whose access number `left` a request ends the run, as at any in Streamlit."""

    left = math.inf

    def __getitem__(self, key):
        self.left -= 1
        if self.left < 0:
            raise RunEnded
        return super().__getitem__(key)

    def __setitem__(self, key, value):
        self.get("any")
        super().__setitem__(key, value)

    def __delitem__(self, key):
        self.get("any")
        super().__delitem__(key)

    def get(self, key, default=None):
        try:
            return self[key]
        except KeyError:
            return default


def test_a_run_that_ends_anywhere_loses_no_click(monkeypatch):
    said = {"edits": [{"number": 1, "parts": [1], "pruned": True}]}
    shape = ModelShape(2, 4, 4, 16, 4, 64, 99, 64)
    for n in count():
        state = EndingState({head_map.KEY: said, "mask": ""})
        monkeypatch.setattr(st, "session_state", state)
        head_map.click_on(shape, Mask.full(shape))
        state.left, is_ended = n, False
        try:
            head_map.apply_edits()
            apply_settings()
        except RunEnded:
            is_ended = True
        state.left = math.inf
        head_map.apply_edits()
        apply_settings()
        assert state["mask"] == "L0H1", f"lost if the run ends at access {n}"
        if not is_ended:
            break
    assert n > 10


def test_a_repeated_question_needs_no_job_and_no_model(open_app):
    first = figure(open_app(order="random", heads="50"))
    frame.jobs().close(WAIT_S)
    frame.store().close()
    st.cache_resource.clear()  # as after a restart
    again = open_app(order="random", heads="50")
    assert figure(again) == first
    assert frame.session().models.loaded is None
    assert frame.jobs().status("accuracy") is None


def test_the_curve_says_what_it_starts_from_and_is_measured_in_the_background(open_app):
    at = open_app(order="random")
    for heads, ffns, mask, starts in (
        (50, 0, "", ""),
        (50, 50, "L0H1", "in addition to “L0H1”, 50% of FFNs"),
        (0, 0, "L0H0 L0H2 L1H1 L1H3 F1 keep L0H1 L0H3 L1H0 F0", "in addition to 4 heads and 1 FFN"),
        (0, 0, "", ""),
    ):
        at.text_input(key="mask").set_value(mask)
        settled(slide(slide(at, "heads", heads), "ffns", ffns))
        title = f"Attention heads pruned {starts}".rstrip()
        assert f'"title": "{title}"' in json.dumps(charts_of(at)[0], ensure_ascii=False)
        assert at.get("vega_lite_chart")[0].proto.alt.endswith(f" The curve is {starts}." if starts else " right.")
    choose_story(at, "far")
    assert frame.jobs().status("curve").state == "done"
    assert "at 100%" in at.get("vega_lite_chart")[0].proto.alt


def test_a_canceled_run_waits_for_the_user(open_app, gate):
    at = open_app(order="random")
    gate.occupy()
    slide(at, "heads", 50).run()
    assert "waiting" in at.progress[0].text
    button(at, "Cancel").click().run()
    gate.go_on.set()
    settled(at)
    assert frame.jobs().status("accuracy").state == "canceled"
    assert "stopped before it began" in said(at)
    press(at, "Resume")
    assert f"of {N}** right" in under_figure(at)


def test_a_ranking_that_is_measured_or_stopped_is_named_with_its_own_count(open_app, gate, monkeypatch):
    real = orders.importance
    monkeypatch.setattr(orders, "importance", lambda *given: gate.held(real(*given), Progress(48, 64)))
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    at = open_app(mask="L0H1")
    slide(at, "heads", 50).run()
    assert gate.reached.wait(WAIT_S)
    at.run()
    assert [each.text for each in at.progress] == ["Ranking heads: 48 of 64 done"]
    assert "about 4 of 8 heads, 0 of 2 FFNs pruned" in under_figure(at)
    assert sent(at, "heads")["texts"]["50"] == "about 4 of 8 heads"
    button(at, "Cancel").click().run()
    assert [each.text for each in at.progress] == ["Ranking heads: stopping"]
    gate.go_on.set()
    settled(at)
    assert "Ranking heads: stopped at 48 of 64. Finished work is kept." in said(at)


def test_a_moved_slider_and_a_moving_hand_abandon_what_is_being_measured(open_app, gate):
    at, keys = open_app(order="random"), []
    gate.occupy()
    for percent in (20, 30, 50):
        slide(at, "heads", percent).run()
        keys.append(frame.jobs().status("accuracy").key)
    assert len(set(keys)) == 3 and not frame.jobs().status("accuracy").finished
    slide(at, "heads", 60, moving=True).run()
    assert frame.jobs().status("accuracy") is None
    gate.go_on.set()
    settled(slide(at, "heads", 50))
    assert "4 of 8 heads" in under_figure(at) and f"of {N}** right" in under_figure(at)
    assert not {0.2, 0.3} & {point["level"] for point in curve(at)["points"]}, "were never measured"


def curve(at):
    """The named tables of the curve as they go to the browser, each a list of rows."""
    return {name: table.to_dict("records") for name, table in frames_of(at)[0].items()}


def test_a_moving_hand_shows_an_estimate_and_measures_nothing(measures_ahead, open_app):
    at = open_app(order="random")
    before, puts = job_states(), frame.store().n_puts
    slide(at, "heads", 45, moving=True).run()
    assert not at.exception and job_states() == before and frame.store().n_puts == puts
    assert figure(at)[1] == "estimate, not measured" and "≈" in figure(at)[0]
    assert "3 of 8 heads, 0 of 2 FFNs pruned" in under_figure(at) and "of 20 questions" not in under_figure(at)
    assert sum(map_of(at)["pruned"]) == 3
    assert level(at, "heads") == 0 and "--prune-heads" not in command_of(at)
    [hand] = curve(at)["hand"]
    assert hand["level"] == 0.45 and figure(at)[0] == f"≈ {100 * hand['estimated']:.0f}%"
    assert not curve(at)["now"], "nothing is measured there"
    slide(at, "heads", 0, moving=True).run()
    assert figure(at)[1] == "measured before" and not curve(at)["hand"] and len(curve(at)["now"]) == 1
    settled(slide(at, "heads", 50))
    assert "4 of 8 heads, 0 of 2 FFNs pruned" in under_figure(at) and not curve(at)["hand"]
    assert f"of {N}** right" in under_figure(at)
    settled(slide(at, "heads", 45))
    settled(slide(at, "heads", 0))
    assert 0.45 in [row["level"] for row in curve(at)["points"]], "a measured level stays"


def test_estimates_are_the_engines(measures_ahead, open_app, questions):
    from engine.accuracy.evaluation import evaluation
    from engine.importance.estimates import Calibration, check, estimate, gradients
    from engine.importance.orders import Orders
    from engine.importance.rankings import random_order

    for file in (questions, questions.with_suffix(".train.jsonl")):  # so that some estimates are shown, and some not
        file.write_text(file.read_text().replace('[" ', '["exactly ').replace(', " ', ', "exactly '))
    at = open_app(order="random", heads="20")  # measured without the typed mask: says nothing with it
    at.text_input(key="mask").set_value("L1H0")
    for percent in (20, 40, 60, 80):
        settled(slide(at, "heads", percent))
    x = experiment_of(at)
    session, shape = frame.session(), x.shape
    found = gradients(x.target, x.questions).stored(session)
    order = random_order(shape.n_heads_total, 0)
    masks = {permille: x.pruning.typed.on(Orders(shape, order, np.arange(shape.n_layers)).mask(permille, 0))
             for permille in range(0, 1001, 50)}  # fmt: skip
    first = {mask.n_heads_pruned: mask for mask in masks.values()}
    checks = [check(evaluation(x.target, x.questions, mask).so_far(session), found, mask) for mask in first.values()]
    bare = np.array([float(estimate(found, mask).estimated) for mask in first.values()])
    calibration = Calibration(np.array(list(first)), bare, tuple(check for check in checks if check is not None))
    assert len(calibration.checks) == len({masks[permille] for permille in (200, 400, 600, 800)})
    rows = curve(at)["estimates"]
    assert [row["level"] for row in rows] == [permille / 1000 for permille in masks]
    places = [list(first).index(mask.n_heads_pruned) for mask in masks.values()]
    for row, place in zip(rows, places, strict=True):
        expected = calibration.corrected[place] if calibration.is_shown[place] else np.nan
        assert row["estimated"] == pytest.approx(expected, abs=1e-9, nan_ok=True)
    texts = sent(at, "heads")["texts"]
    assert "measured" in texts["60"] and "estimate" in texts["100"]
    assert "fast estimate" in said(at)


def test_what_measurements_contradict_is_said_and_not_drawn():
    """The line of the report: 89% where 32% were measured."""
    from engine.importance.estimates import Check
    from engine.views.estimates import EstimateLine, LevelEstimate, describe_preview, short, trust
    from pages.ui.prune.estimates import hand_frame, line_frame

    level, levels = LevelEstimate(0.32, None, False, shown=False), range(0, 1001, 50)
    line = EstimateLine("x", dict.fromkeys(levels, level), {0: 0.32}, 1, (0, Check(4, 0.89, 0.32, 100)))
    assert line_frame(line)["estimated"].isna().all() and line_frame(line)["low"].isna().all()
    assert hand_frame(line, 450).empty and short(level) == "unreliable"
    assert describe_preview(line, 450) is None
    known = {
        permille: LevelEstimate(0.3, 0.01 if permille < 500 else 0.2, permille < 500, permille < 500)
        for permille in levels
    }
    part = EstimateLine("x", known, dict.fromkeys(range(0, 1001, 100), 0.3), 11)
    assert list(line_frame(part)["estimated"].notna()) == [permille < 500 for permille in levels]
    caption, about = describe_preview(part, 450)
    assert "30% ± 1 at this level" in caption and "Calibrated on 11 measured levels" in about
    assert "unreliable at this level" in describe_preview(part, 550)[0]

    def draw(line, permille):
        from pages.ui.prune.figure import draw_estimate

        draw_estimate("Copying", line, permille, "3 of 8 heads pruned", 100)

    for each, permille, value in ((line, 450, "…"), (line, 0, "32.0%"), (part, 550, "…"), (part, 450, "≈ 30%")):
        at = AppTest.from_function(draw, args=(each, permille)).run()
        assert not at.exception and at.metric[0].value == value
        assert is_gray(at) == (permille > 0), "not what is measured"
        assert ("unreliable" in under_figure(at)) == (value == "…")
    steep = EstimateLine("x", {550: LevelEstimate(0.8, 0.02, False, False, "88% at 50%, 69% at 60%")})
    assert trust(steep, 550) == "No estimate on a steep part: measured 88% at 50%, 69% at 60%."


def test_estimates_beyond_the_budget_are_a_button_that_says_what_they_cost(open_app, monkeypatch):
    takes_s = {"gradient": 130.0}
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    monkeypatch.setattr(Workload, "seconds", lambda work, *given: sum(takes_s.get(kind, 0) for kind in work.characters))
    at = open_app(order="random")
    assert frame.jobs().status("gradients") is None and not curve(at)["estimates"], "nobody has asked"
    press(at, "Measure estimates, about 2 min here")
    assert len(curve(at)["estimates"]) == 21 and "Measure estimates" not in " ".join(labels(at))


def test_a_budget_that_is_no_number_is_one_line(open_app, monkeypatch):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "soon")
    at = open_app(order="random")
    assert ["give seconds" in error.value for error in at.error] == [True]


def test_the_panel_of_what_pruning_saves(open_app):
    at = open_app(order="random", heads="50", prune_speed="true")
    assert any("M parameters with embeddings" in caption.value for caption in at.caption)
    next(each for each in at.button if each.key == "offer Speed and memory").click()
    settled(at)
    [rows] = [frames["rows"] for frames in frames_of(at) if "quantity" in frames.get("rows", [])]
    [row] = rows[rows["quantity"] == "Keys and values"].to_dict("records")
    assert (row["unit"], row["full"], row["pruned"], row["ratio"]) == ("bytes/token", 512, 256, 0.5)  # fp32


def test_tokens_a_second_say_how_long_they_take_on_a_slow_model(open_app, monkeypatch):
    monkeypatch.setattr(measurement, "seconds_for", lambda store, target, kind, characters: characters / 1000)
    at = open_app(order="random", heads="50", prune_speed="true")
    [label] = [each.label for each in at.button if each.key == "offer Speed and memory"]
    # 16 turns of 256 tokens and 32 that stand for 20 each, of 4 characters, at 1,000 a second
    assert label.endswith(f"about {in_time(16 * (256 + 32 * 20) * 4 / 1000)} here")


def test_the_pruned_model_is_exported_without_its_dropped_layers(open_app, tmp_path, capsys):
    levels = {"heads": "50", "layers": "50"}
    at = open_app(order="random", prune_export="true", prune_export_form="Small", **levels)
    [sizes] = [each.value for each in at.markdown if "on disk" in each.value]
    at.text_input(key="prune_export_folder").set_value(str(tmp_path / "taken")).run()
    (tmp_path / "taken").mkdir()
    at.run()
    assert "is there already" in said(at) and "Export this model" not in labels(at)
    at.text_input(key="prune_export_folder").set_value(str(tmp_path / "out")).run()
    press(at, "Export this model")
    [written] = [each.value for each in at.markdown if "form small" in each.value]
    assert sizes.split(" with ")[0] in written, "the sizes that were said before are those that it has"
    load, command = (
        next(each.value for each in at.code if words in each.value) for words in ("transformers", "export ")
    )
    assert "trust_remote_code=True" in load and f"--out {tmp_path / 'out'}" in command and "--form small" in command
    card = (tmp_path / "out" / "README.md").read_text()
    assert (tmp_path / "out" / "modeling_pruned.py").exists() and command[command.index("export ") :] in card
    evaluated = next(each for each in command_of(at).splitlines() if " evaluate " in each)
    capsys.readouterr()
    assert main([*shlex.split(evaluated)[1:], "--json"]) == 0
    mask = json.loads(capsys.readouterr().out)["mask"]
    assert "B" in mask and f"--mask '{mask}'" in command and f"Pruned components: `{mask}`" in card


def test_the_address_seeds_every_control_of_a_page_opened_by_its_own_address(open_app):
    address = {"bos": "off", "shots": "1", "limit": "7", "heads": "40", "ffns": "100"}
    at = open_app(run=False, order="random", **address)
    at.switch_page("pages/prune.py")
    settled(at)
    assert at.selectbox(key="bos").value == "off" and at.selectbox(key="model")
    assert at.number_input(key="limit").value == 7 and level(at, "heads") == 40
    command = command_of(at)
    assert "--no-bos" in command and "--shots 1 --limit 7" in command and "--prune-ffns 100" in command
    assert "of 7** right" in under_figure(at)


def test_nonsense_in_the_address_is_put_right(open_app):
    nonsense = {"precision": "int3", "heads": "4000", "shots": "99", "order": "best"}
    at = open_app(**nonsense, layers="50", layers_by="magic")
    assert level(at, "heads") == 100, "the nearest that is allowed"
    assert at.selectbox(key="order").value == orders.QUICK, "as without an order in the address"
    assert at.selectbox(key="layers_by").value == "influence" and "magic" in at.warning[0].value
    assert "--shots 5" in command_of(at)


@pytest.mark.parametrize(
    "parameters, line",
    [
        ({"mask": "L99H0"}, "'L99H0'"),
        ({"model": "/no/such/folder"}, "/no/such/folder"),
        ({"task": "no_such_task"}, "'no_such_task'"),
        ({"data_dir": "/no/such/data"}, "/no/such/data"),
    ],
)
def test_bad_input_is_one_plain_line(open_app, parameters, line):
    at = open_app(**parameters)
    assert at.error and all(line in error.value and "\n" not in error.value for error in at.error)
    assert not any("Traceback" in error.value or "unexpected" in error.value for error in at.error)


def test_the_table_of_answers(open_app):
    at = open_app(order="random", heads="50")
    found = recalled(at)
    table = choice_frame(found.full, found.pruned)
    assert len(table) == N * 3 and table["question"].nunique() == N
    right = table[table["pruned_chosen"] & table["gold"]]
    assert f"{100 * len(right) / N:.1f}%" == figure(at)[0]
    assert (table.groupby("question")["full_chosen"].sum() == 1).all()


def recalled(at):
    """What the page has just shown, read from the store once more."""
    from engine.importance.orders import Evidence

    x = experiment_of(at)
    return experiment.accuracies(x, x.mask(Evidence())).so_far(frame.session())


def published(monkeypatch, *rows):
    """Has the table of published numbers hold these: (model, task, shots, with a beginning token, metric, value)."""
    from engine.accuracy import published as table

    found = tuple(
        table.Published("harness-0.3", str(model), "", task, shots, bos, metric, value, 0.01)
        for model, task, shots, bos, metric, value in rows
    )
    monkeypatch.setattr(table, "built_in", lambda: found)


def test_what_was_published_of_the_full_model_stands_beside(open_app, tiny_opt, monkeypatch):
    published(monkeypatch, (tiny_opt, "demo_copy", 0, False, "acc", 0.4567), (tiny_opt, "demo_copy", 1, True, "acc", 1))
    of_task = {"task": "demo_copy", "shots": "0", "limit": "16", "order": "random"}
    for more, words in (
        ({}, "**45.7%** (without BOS)"),  # the tiny model's own tokenizer puts a beginning token in front
        ({"shots": "1"}, "**100.0%** (other examples)"),
    ):
        assert f"Full model as published: {words}" in under_figure(open_app(**of_task | more))
    assert "published" not in under_figure(open_app(**of_task | {"shots": "5"}))
