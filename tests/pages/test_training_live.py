"""Training a tiny model live: a click trains it in its own process, the charts show its log, and the result opens."""

import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from engine.training.folders import open_run, runs_in
from engine.training.recipe import RECIPES, Recipe
from pages.ui.training import live, live_charts
from tests.conftest import HANG_S
from tests.pages.conftest import button, charts_of

TINY = Recipe(1, 2, 16, 16, smeared=True, batch=4, rate=0.001, tokens=3000, repeats=0.25, period=(2, 8), seed=3)
LINE = {"step": 0, "tokens": 0, "loss": 6.0, "icl": 0.0, "first_copy": 6.0, "second_copy": 5.0,
        "prefix_matching": [[0.1, 0.2]], "previous_token": [[0.3, 0.4]], "seconds": 2.0}  # fmt: skip


def section(folder):
    from pathlib import Path

    import streamlit as st

    from pages.ui.training.live import draw_live

    draw_live(Path(folder), *st.columns(2))


@pytest.fixture
def text(tmp_path):
    """A folder of words that a few thousand tokens can be read from."""
    drawn, folder = random.Random(0), tmp_path / "text"
    folder.mkdir()
    words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=drawn.randint(2, 9))) for _ in range(3000)]
    for number in range(20):
        (folder / f"{number}.txt").write_text(" ".join(drawn.choices(words, k=1500)), encoding="utf-8")
    return folder


@pytest.fixture
def opened(tmp_path):
    """Opens the section in a new session."""
    st.cache_resource.clear()

    def opened():
        at = AppTest.from_function(section, args=(str(tmp_path / "runs"),), default_timeout=HANG_S)
        at.run()
        assert not at.exception, at.exception
        return at

    yield opened
    live.trainings().close(HANG_S)
    st.cache_resource.clear()


def test_a_stopped_run_is_offered_a_click_trains_it_on_and_the_result_opens_everywhere(opened, tmp_path, text):
    from engine.training.running import begin, train

    runs = tmp_path / "runs"
    run = begin(runs / "half done", TINY, text)
    steps = train(run)
    for _ in range(5):
        next(steps)
    steps.close()
    at = opened()
    assert not charts_of(at) and button(at, "Train two tiny models live, about 2 min")
    [offer] = [each for each in at.button if each.label.startswith("Resume half done, ")]
    offer.click().run()
    slot = f"training {run.folder}"
    assert live.trainings().snapshot(slot) is not None and len(charts_of(at)) == 5
    live.trainings().join(slot, HANG_S)
    at = opened()  # the page is loaded again: it finds what was trained
    [run] = runs_in(runs)
    assert run.is_done and run.recipe == TINY
    spec = charts_of(at)[0]
    assert spec["title"]["text"] == live_charts.HEADS["prefix_matching"]
    [words] = [each.value for each in at.markdown if "best prefix match" in each.value]
    assert words.startswith(
        "**1 layer, attention only, smeared keys, 25% repeats: no induction head so far.** After 2.94 k"
    )
    button(at, "Open it on the other screens").click().run()
    assert at.session_state["model"] == f"{run.folder}@step{run.recipe.n_steps}"
    assert open_run(run.folder).steps()[-1] == run.recipe.n_steps
    button(at, "Close").click().run()
    assert not charts_of(at) and not [each for each in at.button if each.label == "Close"]


def test_a_click_begins_a_recipe_and_its_control_after_it(tmp_path, monkeypatch):
    put, trainings = [], SimpleNamespace(put=lambda slot, job, again: put.append((slot, job.priority)))
    monkeypatch.setattr(live, "trainings", lambda: trainings)
    monkeypatch.setattr(live, "shown_last", dict)
    for name in (live.FIRST, *live.OTHERS):
        live.begin(tmp_path, name)
    names = [("repeats", 0), ("repeats-1-layer", 1), ("smeared", 0), ("plain", 1), ("half", 0)]
    assert put == [(f"training {tmp_path / name}", priority) for name, priority in names]


def test_what_is_wrong_is_one_line(opened, tmp_path):
    runs = tmp_path / "runs"
    live._train(runs, live.LiveRun(runs / "own", TINY, tmp_path / "gone"))
    live.trainings().join(f"training {runs / 'own'}", HANG_S)
    at = opened()
    assert "does not exist" in at.error[0].value and button(at, "Retry")


def test_charts_hold_the_log():
    log = [LINE, {**LINE, "step": 10, "tokens": 640}]
    recipe = Recipe(1, 2, 16, 16, batch=4, tokens=1280, warm_up=5)
    drawn = live_charts.pictures(recipe, log, log[:1])
    assert len(drawn) == 5
    for title, picture in drawn.items():
        json.dumps(picture.spec)
        assert picture.template["title"]["text"] == title
    heads = drawn["Prefix matching, each head"].datasets["heads"]
    assert [(each["who"], each["name"], each["tokens"]) for each in heads] == [
        ("run", "L0H0", 0), ("run", "L0H1", 0), ("run", "L0H0", 640), ("run", "L0H1", 640),
        ("control", "L0H0", 0), ("control", "L0H1", 0)]  # fmt: skip


def test_a_held_out_loss_that_rises_is_marked_and_a_run_without_text_has_none():
    losses = [6.0, 5.0, 4.0, 4.5, 5.0, 5.0, 5.0, 5.0]
    log = [{**LINE, "tokens": 100_000 * at, "loss": loss} for at, loss in enumerate(losses)]
    drawn = live_charts.pictures(RECIPES["half"].recipe, log)
    assert [each["tokens"] for each in drawn["Loss of held-out text, nats"].datasets["marks"]] == [200_000]
    assert not drawn["In-context gain, nats"].datasets["marks"]
    assert live_charts.rises_from(log[:3]) is None and live_charts.rises_from([]) is None
    of_repeats = RECIPES["repeats"].recipe
    assert len(live_charts.pictures(of_repeats, log)) == 3


def test_canceling_a_run_cancels_the_control_that_waits_for_it(monkeypatch):
    stopped = []
    monkeypatch.setattr(live, "trainings", lambda: SimpleNamespace(cancel=stopped.append))
    recipe = RECIPES["repeats"].recipe
    live._cancel(live.LiveRun(Path("run"), recipe, None, live.LiveRun(Path("control"), recipe)))
    assert stopped == ["training control", "training run"], "the control would begin in between"
