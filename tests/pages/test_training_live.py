"""Training tiny models live: a click trains a run and its control in their own process, and chooses both; their charts
are those of any other run."""

from types import SimpleNamespace

import pytest
import streamlit as st

from engine.training.folders import open_run, runs_in
from engine.training.recipe import RECIPES, Recipe
from pages.ui.training import live, runs
from tests.conftest import HANG_S
from tests.engine.fixtures import write_words
from tests.pages.conftest import button, charts_of

TINY = Recipe(1, 2, 16, 16, smeared=True, batch=4, rate=0.001, tokens=3000, repeats=0.25, period=(2, 8), seed=3)


@pytest.fixture
def text(tmp_path):
    """A folder of words that a few thousand tokens can be read from."""
    return write_words(tmp_path / "text", 20)


@pytest.fixture
def opened(tmp_path, open_app):
    """Opens the screen in a new session, with an own folder of runs."""
    st.cache_resource.clear()
    yield lambda: open_app("training", training_folder=str(tmp_path / "runs"))
    live.trainings().close(HANG_S)
    st.cache_resource.clear()


def test_a_stopped_run_is_offered_a_click_trains_it_on_and_the_result_opens_everywhere(opened, tmp_path, text):
    from engine.training.running import begin, train

    folder = tmp_path / "runs"
    run = begin(folder / "half done", TINY, text)
    steps = train(run)
    for _ in range(5):
        next(steps)
    steps.close()
    at = opened()
    button(at, "Resume half done").click().run()
    slot = f"training {run.folder}"
    assert live.trainings().status(slot) is not None and at.selectbox(key="training_run").value == "half done"
    live.trainings().join(slot, HANG_S)
    at.run()
    [run] = runs_in(folder)
    assert run.is_done and run.recipe == TINY
    assert len(charts_of(at)) == 2
    [said] = [each.value for each in at.markdown if each.value.startswith("#### ")]
    assert said.startswith("#### **No induction head forms by 0.0029 M tokens**")
    at.button(key="training take model").click().run()
    assert at.session_state["model"] == f"{run.folder}@step{run.recipe.n_steps}"
    assert open_run(run.folder).steps()[-1] == run.recipe.n_steps


def test_a_click_trains_a_recipe_and_chooses_it_next_to_its_control(tmp_path, monkeypatch):
    put, begun, chosen = [], {}, []
    jobs = SimpleNamespace(put=lambda slot, job, again: put.append(slot), cancel=lambda slot: put.append(f"not {slot}"))
    monkeypatch.setattr(live, "trainings", lambda: jobs)
    monkeypatch.setattr(live, "begun_last", lambda: begun)
    monkeypatch.setattr(live, "choose_runs", lambda *names: chosen.append(names))
    for name in (live.FIRST[0], *live.OTHERS):
        live.begin(tmp_path, name)
    slots = [f"training {tmp_path / name}" for name in ("two-layers", "smeared", "half")]
    assert put == [slots[0], f"not {slots[0]}", slots[1], f"not {slots[1]}", slots[2]]
    assert chosen == [("two-layers (own)", "one-layer"), ("smeared (own)", "plain"), ("half", live.NO_RUN)]


def test_a_run_is_drawn_from_the_untrained_model_on_before_its_folder_is_there(tmp_path, monkeypatch):
    from engine.training.model import untrained

    jobs = SimpleNamespace(status=lambda slot: SimpleNamespace(value=untrained(TINY)))
    monkeypatch.setattr(live, "trainings", lambda: jobs)
    source = live.LiveRun(tmp_path / "new", TINY).source
    found = runs.trajectory_of(runs.sources(tmp_path, [source])["new"])
    assert found is not None and found.tokens.tolist() == [0] and found.heads["prefix_matching"].shape == (1, 1, 2)


def test_what_is_wrong_is_one_line(opened, tmp_path):
    folder = tmp_path / "runs"
    live.begun_last()[folder] = run = live.LiveRun(folder / "own", TINY, tmp_path / "gone")
    live.restart(run)
    live.trainings().join(run.slot, HANG_S)
    at = opened()
    assert "does not exist" in at.error[0].value and button(at, "Retry")


def test_the_forecast_is_one_for_button_and_progress_and_falls_with_what_is_done(monkeypatch):
    monkeypatch.setattr(live, "measured_pace", dict)
    one, two = (RECIPES[name].recipe for name in ("one-layer", "two-layers"))
    trains_s = live.SECONDS_PER_MILLION * two.tokens / 1e6
    assert live.takes_s(two) == pytest.approx(live.BEGIN_S + trains_s)
    assert live.takes_s(two, SimpleNamespace(done=0, total=two.tokens)) == live.takes_s(two)
    half = SimpleNamespace(done=two.tokens // 2, total=two.tokens)
    assert live.takes_s(two, half) == pytest.approx(trains_s / 2)
    assert live.takes_s(one) == pytest.approx(live.BEGIN_S + trains_s * 2 / 3), "a layer takes as long as the rest"
    monkeypatch.setattr(live, "measured_pace", lambda: {live.PACE: 100.0})
    assert live.takes_s(two) == pytest.approx(live.BEGIN_S + 100 * two.tokens / 1e6)
