"""The Head screen in one process: what it says of a head, what it measures by itself, steps, links, and bad input."""

import json
import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engine.demo import passages
from engine.heads.in_text import HeadOnProbe
from engine.heads.induction import InductionScores, induction
from engine.importance.criteria import CRITERIA, KINDS
from engine.models.loading import LoadSpec
from engine.models.masks import parse_mask
from engine.shapes import ModelShape
from engine.studies.one_head import LOOKING, READ, TITLES, built_in, texts_to_read
from engine.studies.portrait import Portrait
from engine.texts.tokenloss import token_losses
from pages.ui.head import asking, charts, measuring, tables
from pages.ui.head.asking import neighbour
from pages.ui.head.measuring import Known
from pages.ui.head.portrait import looks_in_text, mark_kind
from pages.ui.page import runtime
from pages.ui.page.tables import plain
from pages.ui.page.work import Work
from tests.pages.conftest import (
    charts_of,
    components,
    frames_of,
    labels,
    press,
    said,
    same_on_the_command_line,
    settled,
)

SHAPE = ModelShape(3, 4, 4, 32, 8, 64, 512, 256)


@pytest.fixture
def open_screen(open_app):
    return partial(open_app, "head", head="L1H2", head_tasks="demo_copy", head_shots="0")


def test_a_head_is_looked_at_by_itself_and_what_it_says_is_what_the_command_says(
    measures_ahead, open_screen, tiny_opt, capsys, monkeypatch
):
    at = open_screen()
    [headline] = [each.value for each in at.header]
    assert headline.startswith("L1H2 · ") and not any("Measure all" in label for label in labels(at))
    before = {*runtime.store().keys()}
    found = same_on_the_command_line(at, capsys)
    kinds = {key.split("/")[1] for key in {*runtime.store().keys()} - before}
    assert kinds == {"idealised", "head feeding"}, "all else is what the screen has measured"
    assert headline == f"L1H2 · {found['verdict'].rstrip('.')}"
    frames = {name: frame for each in frames_of(at) for name, frame in each.items()}
    assert {"scores", "cells", "tasks", "places"} <= set(frames)
    mine = frames["scores"][frames["scores"]["mine"]].set_index("score")["words"]
    rank = found["scores"]["olsson"]["prefix_matching"]["rank"]
    assert mine["Prefix matching"].endswith(f"· {rank} of 8") and len(mine) == 4, (
        "a function-vector score under 0.01 is noise"
    )
    [task] = found["tasks"]
    assert frames["tasks"]["points"].tolist() == pytest.approx([100 * task["change"]])
    ranks, scores = (
        {each["what"]: each["rank"] for each in found["importance"]},
        {each.label: each.heads for name, each in CRITERIA.items() if name not in KINDS},
    )
    assert ranks.keys() == {*scores.values()}
    assert frames["places"]["rank"].tolist() == [ranks[scores[name]] for name in tables.ASKS]
    assert any(TITLES["context"] in each.value for each in at.caption)  # the window is too short for it, and it says so
    text = next(each.text for each in passages() if each.title == READ)
    [sent] = [each for each in components(at) if "pieces" in each]  # set as on the Passage screen
    target = runtime.session().target(LoadSpec(str(tiny_opt), "fp32"))
    for side, mask in (("a", ""), ("b", "L1H2")):
        measured = token_losses(target, text, parse_mask(mask, target.shape)).stored(runtime.session())
        assert sent["loss"][side] == pytest.approx(measured.loss_nats.tolist(), abs=1e-4)
    assert "".join(sent["pieces"]) == text and sent["words"]["b"] == "without" and sent["full"] > 0
    before = len(at.dataframe)
    at.text_input(key="head_token").set_value(" river")
    settled(at)
    assert len(at.dataframe) == before + 1  # a table of one's own tokens
    assert at.text_input(key="head_token").value == " river"
    assert_stored_results_show(open_screen, monkeypatch)


def assert_stored_results_show(open_screen, monkeypatch):
    """While the worker cannot read what is stored, the page shows it, and that of the last page meanwhile."""
    monkeypatch.setattr(Work, "stored", lambda self, others="": [])
    monkeypatch.setattr(Work, "is_read", False)
    again = open_screen()  # that of the previous run too
    assert "tasks" in {name for each in frames_of(again) for name in each}
    runtime.notes().clear()
    at = open_screen()
    assert "prefix matching" in at.header[0].value
    assert {"scores", "cells"} <= {name for each in frames_of(at) for name in each}
    assert not any("Measure all" in label for label in labels(at)) and "Reading stored results …" in said(at)


def test_nothing_begins_unasked_where_that_is_set_and_each_part_has_its_button(open_screen):
    at = open_screen(head_tasks="demo_copy,demo_walk")
    first, shown = (
        {TITLES[name] for name in measuring.FIRST},
        {TITLES[name] for name in (*LOOKING, "tasks", "heads-oracle") if name not in measuring.ON_THE_BENCH},
    )
    assert labels(at).count("Measure this head") == 1 and charts_of(at) == []
    assert shown - {*labels(at)} == first | {TITLES["context"]}, "its place is taken by that button"
    assert said(at).lower().count("not measured yet") == 1
    press(at, TITLES["scores"])
    assert TITLES["scores"] not in labels(at) and len(charts_of(at)) == 1 and first <= {*labels(at)}
    assert "Measure the rest" in labels(at)
    assert re.match(r"L1H2 · .*prefix matching", at.header[0].value)
    at.multiselect(key="head_tasks").set_value([])
    settled(at)
    assert TITLES["tasks"] not in labels(at) and TITLES["tokens"] in labels(at) and "Choose a task" in said(at)


def test_what_a_screen_measures_by_itself_is_chosen_once_and_what_is_on_top_comes_first(monkeypatch):
    noted, seconds = dict[str, object](), {"scores": 8.0, "probe": 1.0, "texts": 4.0, "tasks": 50.0, "heads": 55.0}
    monkeypatch.setattr(measuring, "notes", lambda: noted)
    monkeypatch.setattr(measuring, "first_figure_s", lambda: 60.0)

    def known(*missing: str) -> Any:
        takes_s, target = lambda names: seconds[names[0]], SimpleNamespace(spec=SimpleNamespace(is_demo=False))
        return SimpleNamespace(
            missing=missing, takes_s=takes_s, target=target, work=SimpleNamespace(key="L1H2"), is_read=True
        )

    assert measuring.cheap(known(*seconds)) == ["probe", "texts", "scores"]
    assert measuring.cheap(known("scores", "tasks", "heads")) == ["scores"]
    assert measuring.cheap(known("tasks", "heads")) == [], "the rest asks, as it is over a minute with the first"


def test_the_text_that_is_drawn_on_top_is_measured_first():
    assert next(iter(texts_to_read())) == READ and {*texts_to_read()} == {*built_in()}


def test_the_screen_opens_with_the_head_of_the_best_prefix_matching(open_screen, tiny_opt, monkeypatch):
    monkeypatch.setattr(measuring, "cheap", lambda known: [])  # what is drawn of the head
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    assert open_screen(head="", head_tasks="").header[0].value == "L0H0", "nothing is measured unasked"
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "10")
    at = open_screen(head="", head_tasks="")
    found = induction(runtime.session().target(LoadSpec(str(tiny_opt), "fp32"))).stored(runtime.session())
    layer, head = np.unravel_index(np.argmax(found.mean["prefix_matching"]), (2, 4))
    assert at.header[0].value.startswith(f"L{layer}H{head} · ")


def test_steps_go_round_and_a_head_that_is_none_is_one_line_above_the_first(open_screen):
    at = open_screen(head="L7H0")
    for text in ("L7H0", "nose", "L0H*"):
        at.text_input(key="head").set_value(text).run()
        [error] = at.error
        words = f"“{plain(text)}” is not a head of this model: type one from L0H0 to L1H3. Below is L0H0."
        assert error.value == words
        assert at.header[0].value.startswith("L0H0") and at.selectbox and at.tabs
    for step, head in (("before", "L1H3"), ("after", "L0H0")):
        at.button(key=f"head {step}").click()
        settled(at)
        assert at.text_input(key="head").value == head and at.header[0].value.startswith(head)
    assert [neighbour(SHAPE, "L0H3", by) for by in (-1, 1)] == ["L0H2", "L1H0"]


def test_a_listed_head_opens_and_a_late_report_of_a_left_list_does_not(monkeypatch):
    state = {"list": "L0H5", asking.KEY: "L1H2"}
    monkeypatch.setattr(asking, "st", SimpleNamespace(session_state=state))
    opened = []
    monkeypatch.setattr(asking, "go_to", opened.append)
    asking._listed("list", "L1H1")  # of a head that was left
    asking._listed("list", "L1H2")
    assert opened == ["L0H5"]


def test_the_parts_of_the_page_are_in_the_address(open_screen):
    at = open_screen(head_part="In a text")
    assert at.session_state["head_part"] == "In a text" and not at.error
    assert [tab.label for tab in at.tabs] == ["Among all heads", "Without it", "In a text", "Tokens it promotes"]
    assert open_screen(head_part="nothing such").session_state["head_part"] == "Among all heads"


@pytest.mark.parametrize(
    "scores, title, value",
    [
        ({"prefix_matching": 0.87}, "Prefix matching", "0.87"),
        ({"previous_token": 0.9, "prefix_matching": 0.1}, "Previous token", "0.90"),
    ],
)
def test_the_large_figure_is_the_score_that_names_the_kind_of_head(scores, title, value):
    names = ("prefix_matching", "copying", "previous_token", "duplicate_token", "ov_eigen", "qk_trace")
    mean = {name: np.zeros((3, 4)) for name in names}
    for name, score in scores.items():
        mean[name][2, 1] = score
    found = Portrait(SHAPE, (2, 1), {"olsson": InductionScores(mean, mean, dict.fromkeys(names, 10))})
    [figure] = tables.figures_of(found)
    assert (figure.title, figure.value, figure.note) == (title, value, "rank 1 of 12 heads")
    assert tables.figures_of(Portrait(SHAPE, (2, 1))) == []


def test_a_head_without_a_kind_is_named_by_what_is_clearly_lost_without_it(monkeypatch):
    names = ("prefix_matching", "copying", "previous_token", "duplicate_token", "ov_eigen", "qk_trace")
    mean = {name: np.full((3, 4), 0.1) for name in names}
    mean["prefix_matching"][0, 1] = 0.8
    row = {"task": "walk", "acc": 0.95, "acc_without": 0.58, "points": -37.0, "p": 0.001}
    monkeypatch.setattr(tables, "effect_rows", lambda found: pd.DataFrame([row]))
    exact = {name: np.zeros((3, 4)) for name in names}
    scores = {"olsson": InductionScores(mean, exact, dict.fromkeys(names, 10))}
    found, other = Portrait(SHAPE, (2, 1), scores), Portrait(SHAPE, (0, 1), scores)
    assert tables.headline(found) == "37 points lost on walk without it"
    assert tables.facts(found) == [] and tables.of_interest(found) == {"L0H1": tables.KINDS["prefix_matching"]}
    assert tables.headline(other).startswith("An induction head") and "37.0 points worse" in tables.facts(other)[0]
    row["p"] = 0.3
    assert tables.headline(found).startswith("No known kind") and tables.facts(other) == []


def test_each_score_is_on_a_scale_of_its_own_and_a_kind_that_is_noise_is_left_out():
    rng = np.random.default_rng(0)
    names = ("prefix_matching", "copying", "previous_token", "duplicate_token", "ov_eigen", "qk_trace")
    mean = {name: rng.random((3, 4)) for name in names}
    scores = InductionScores(mean, mean, dict.fromkeys(names, 10))
    found = Portrait(SHAPE, (2, 1), {"olsson": scores})
    rows = tables.score_rows(found)
    assert rows["at"].between(0, 1).all() and rows["mine"].sum() == 4
    rows = tables.score_rows(replace(found, kinds={"retrieval": np.arange(12.0).reshape(3, 4) - 1}))
    assert rows["at"].between(0, 1).all() and rows["score"].iloc[-1] == "Retrieval"
    assert rows["words"].iloc[-12:].max() == "8.00 · 3 of 12"
    assert "Retrieval" not in {*tables.score_rows(replace(found, kinds={"retrieval": np.full((3, 4), 0.007)}))["score"]}
    cells = tables.probe_cells(HeadOnProbe(np.array([[1, 0], [0.01, 0.99]]), ("a", "b")))
    assert cells[["destination", "source"]].to_numpy().tolist() == [[0, 0], [1, 1]]
    for picture in (charts.score_strip(rows), charts.pattern_map(cells, 2, (1,))):
        assert json.dumps(picture.spec)


def test_orange_marks_where_heads_of_its_kind_look_and_only_if_it_does():
    ids, pattern = np.array([0, 7, 8, 9, 7, 8, 9, 3, 9]), np.zeros((9, 9))
    pattern[[4, 5, 6], [2, 3, 4]] = 0.6, 0.9, 0.3  # what followed the token three before
    seen = SimpleNamespace(token_ids=ids, pattern=pattern, to_previous=np.full(9, 0.02))
    share, copies = looks_in_text(seen, "prefix_matching")
    offsets, words = mark_kind("prefix_matching", share, copies)
    assert offsets == (2,) and words == "Orange: what followed an earlier copy, 60% of repeated tokens' attention."
    assert mark_kind("previous_token", *looks_in_text(seen, "previous_token")) == ((), "")
    assert looks_in_text(seen, "duplicate_token") == (0, (3,)) and mark_kind("duplicate_token", np.nan, (3,)) == (
        (),
        "",
    )
    cells = tables.probe_cells(HeadOnProbe(np.array([[1, 0], [0.5, 0.5]]), ("a", "b")))
    for offsets, marked in (((), [False] * 3), ((1,), [False, True, False])):
        assert [each["marked"] for each in charts.pattern_map(cells, 2, offsets).datasets["cells"]] == marked


def test_only_parts_that_the_work_measures_are_under_way(monkeypatch):
    monkeypatch.setattr(measuring, "notes", lambda: {measuring.NOW: ["losses"]})
    known = SimpleNamespace(work=SimpleNamespace(under_way=True), part=lambda name: SimpleNamespace(under_way=False))
    assert [Known.is_under_way(known, name) for name in ("losses", "heads")] == [True, False]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "is_demo, seconds, begun", [(True, 10.0, ["probe", "texts"]), (False, 10.0, []), (True, 0.0, [])]
)
def test_the_patterns_of_the_demo_model_begin_whatever_the_forecast(is_demo, seconds, begun, monkeypatch):
    monkeypatch.setattr(measuring, "first_figure_s", lambda: seconds)
    target = SimpleNamespace(spec=SimpleNamespace(is_demo=is_demo))
    parts = ["probe", "texts", "losses"]
    monkeypatch.setattr(measuring, "notes", dict)
    work = SimpleNamespace(key="L1H2")
    known = SimpleNamespace(missing=parts, takes_s=lambda names: 480.0, target=target, work=work, is_read=True)
    assert measuring.cheap(known) == begun  # pyright: ignore[reportArgumentType]
