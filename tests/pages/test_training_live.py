"""Training tiny models live: a click trains a run and its control in their own process, and chooses both; their charts
are those of any other run."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st

from engine.training.folders import open_run, runs_in
from engine.training.recipe import RECIPES, Recipe
from pages.ui.training import live, runs
from tests.conftest import HANG_S
from tests.pages.conftest import button, charts_of

TINY = Recipe(1, 2, 16, 16, smeared=True, batch=4, rate=0.001, tokens=3000, repeats=0.25, period=(2, 8), seed=3)


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
    assert live.trainings().snapshot(slot) is not None and at.selectbox(key="training_run").value == "half done"
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


@pytest.fixture
def put(monkeypatch, tmp_path):
    """Collects what is to be trained, and chosen."""
    put, begun = [], {}
    jobs = SimpleNamespace(put=lambda slot, job, again: put.append((slot, job.priority)), snapshot=lambda slot: None,
                           cancel=lambda slot: None)  # fmt: skip
    monkeypatch.setattr(live, "trainings", lambda: jobs)
    monkeypatch.setattr(live, "begun_last", lambda: begun)
    monkeypatch.setattr(live, "choose_runs", lambda *names: put.append(names))
    return put


def test_a_click_begins_a_recipe_and_its_control_after_it_and_chooses_both(tmp_path, put):
    for name in (live.FIRST[0], *live.OTHERS):
        live.begin(tmp_path, name)
    trained = [each for each in put if str(each[0]).startswith("training ")]
    names = [("two-layers", 0), ("one-layer", 1), ("smeared", 0), ("plain", 1), ("half", 0)]
    assert trained == [(f"training {tmp_path / name}", priority) for name, priority in names]
    own = [("two-layers (own)", "one-layer (own)"), ("smeared (own)", "plain (own)"), ("half", live.NO_RUN)]
    assert [each for each in put if each not in trained] == own


def test_a_run_is_drawn_from_the_untrained_model_on_before_its_folder_is_there(tmp_path, monkeypatch):
    from engine.training.model import untrained

    jobs = SimpleNamespace(snapshot=lambda slot: SimpleNamespace(value=untrained(TINY)))
    monkeypatch.setattr(live, "trainings", lambda: jobs)
    source = live.LiveRun(tmp_path / "new", TINY).source
    found = runs.trajectory_of(runs.sources(tmp_path, [source])["new"])
    assert found is not None and found.tokens.tolist() == [0] and found.heads["prefix_matching"].shape == (1, 1, 2)


def test_what_is_wrong_is_one_line(opened, tmp_path):
    folder = tmp_path / "runs"
    live.begun_last()[folder] = [live.LiveRun(folder / "own", TINY, tmp_path / "gone")]
    live.restart(folder)
    live.trainings().join(f"training {folder / 'own'}", HANG_S)
    at = opened()
    assert "does not exist" in at.error[0].value and button(at, "Retry")


def test_the_forecast_is_one_for_button_and_progress_and_falls_with_what_is_done(monkeypatch, tmp_path):
    pair = [live.LiveRun(tmp_path / name, RECIPES[name].recipe) for name in live.FIRST]
    jobs = dict.fromkeys(each.slot for each in pair)
    monkeypatch.setattr(live, "trainings", lambda: SimpleNamespace(snapshot=jobs.get))
    monkeypatch.setattr(live, "measured_pace", dict)
    whole_s = live.left_s(pair)
    assert whole_s == pytest.approx(2 * live.BEGIN_S + live.SECONDS_PER_MILLION * 1.2 * (1 + 2 / 3))
    jobs[pair[0].slot] = SimpleNamespace(done=600_000, total=1_200_000, finished=False)
    half_s = live.left_s(pair)
    assert whole_s - half_s == pytest.approx(live.BEGIN_S + live.SECONDS_PER_MILLION * 0.6)
    jobs[pair[0].slot] = SimpleNamespace(done=1_200_000, total=1_200_000, finished=True)
    assert live.left_s(pair) == pytest.approx(live.BEGIN_S + live.SECONDS_PER_MILLION * 0.8)


def test_canceling_stops_the_control_that_waits_first(monkeypatch):
    stopped = []
    monkeypatch.setattr(live, "trainings", lambda: SimpleNamespace(cancel=stopped.append))
    live._cancel([live.LiveRun(Path(name), TINY) for name in ("run", "control")])
    assert stopped == ["training control", "training run"], "the control would begin in between"
