"""A series of snapshots: of a run, of another trainer's run, and a published one; which hold the same weights."""

import json

import numpy as np
import pytest

from engine.checkpoints import hub
from engine.errors import HeadroomError, NotHere, UsageError
from engine.progress import final
from engine.requests.training import table
from engine.training.folders import Foreign, open_run, runs_in
from engine.training.measuring import TrajectoryPlan, target_at, trajectory
from engine.training.trajectory import decode, encode, series_of
from tests import hub_stand_in as stand_in
from tests.engine.fixtures import foreign_run, refused_by, small_run, target_in

SERIES = "someone/tiny@step{3000,0,2000}"
COMMITS = {"step0": "a" * 40, "step2000": "b" * 40, "step3000": "c" * 40}
LOSS = TrajectoryPlan(what=("loss",), n_texts=2)


@pytest.fixture
def served(tiny_opt, tmp_path, monkeypatch):
    """A hub whose step 0 has weights of its own, and whose step 2000 holds those of step 3000."""
    repository = stand_in.Hub(stand_in.files_of(tiny_opt))
    repository.revisions |= COMMITS | {commit: commit for commit in COMMITS.values()}
    weights = repository.files["model.safetensors"]
    repository.own[COMMITS["step0"]] = {"model.safetensors": weights[:-4] + b"\0\0\0\0"}
    with stand_in.served(repository) as address:
        stand_in.use(monkeypatch, address, tmp_path / "hub")
        yield repository


@pytest.fixture
def foreign(tiny_opt, tmp_path):
    return foreign_run(tmp_path / "other", tiny_opt)


def test_published_snapshots_in_order_are_asked_for_one_by_one_and_equal_weights_are_said(served, session):
    series = series_of(SERIES, step_tokens=10)
    assert (series.steps, series.tokens, series.run) == ((0, 2000, 3000), (0, 20_000, 30_000), None)
    assert series.models == tuple(f"someone/tiny@step{step}" for step in series.steps) and served.requests == []
    for model in series.models:
        with pytest.raises(NotHere) as away:
            final(trajectory(target_at(session, series), series, LOSS).run(session))
        assert away.value.model == model
        list(hub.download(hub.look_up(model)))
    found = final(trajectory(target_at(session, series), series, LOSS).run(session))
    assert found.about["same_weights"] == [[2000, 3000]] and found.loss[0] != found.loss[1] == found.loss[2]


def test_a_run_is_a_series_of_all_its_snapshots(tmp_path, monkeypatch):
    run = small_run(tmp_path / "runs" / "mine@home")
    whole, some = series_of(f" {run.folder} "), series_of(f"{run.folder}@step{{32,0}}")
    assert whole.steps == run.steps() and whole.tokens[-1] == run.recipe.tokens and whole.run == run
    assert some.steps == (0, 32) and some.models == tuple(str(run.snapshot(step)) for step in (0, 32))
    monkeypatch.setattr("engine.checkpoints.names.runs_folder", lambda: tmp_path / "runs")
    assert series_of("runs/mine@home") == whole


def test_a_run_of_another_trainer_is_measured_like_any_other(foreign, session):
    series = series_of(f"{foreign.folder}@step{{8,64}}")
    assert isinstance(foreign, Foreign) and (series.label, series.tokens) == (foreign.label, (800, 12_000))
    found = final(
        trajectory(target_at(session, series), series, TrajectoryPlan(n_ablated_texts=1, n_ablated=1)).run(session)
    )
    assert dict(found.recipe) == dict(foreign.said) and found.about["text"] == "held-out text: books held out"
    assert found.by_index.shape == (2, 256) and np.isfinite(found.ablated_icl).all()
    loaded = session.models.get(target_in(session, foreign.snapshot(64)).spec)
    import torch

    ids = torch.from_numpy(np.insert(foreign.held_out()[:, :256].astype(np.int64), 0, 2, axis=1))
    with torch.inference_mode():
        logits = loaded.model(input_ids=ids[:, :-1]).logits
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    assert found.by_index[1] == pytest.approx(losses.view(3, 256).mean(0).numpy(), abs=1e-4)
    again = decode(encode(found))
    assert again.recipe == found.recipe
    assert len(table(again, ("induction",))) == 2 * (5 * 8 + 4), "layer 0 has no QK trace"


def test_a_run_of_another_trainer_is_never_gone_on_with(foreign):
    refused_by(HeadroomError, "is a run of someone.else, which alone goes on with it", lambda: open_run(foreign.folder))
    assert runs_in(foreign.folder.parent) == []
    lines = [json.loads(line) for line in (foreign.folder / "log.jsonl").read_text().splitlines()]
    (foreign.folder / "log.jsonl").write_text(json.dumps(lines[0]))
    assert series_of(str(foreign.folder)).steps == (0, 8)  # the log says nothing of the others
    with pytest.raises(HeadroomError, match="no snapshot of step 64; there are those of 0, 8"):
        series_of(f"{foreign.folder}@step64")


def test_what_is_no_series_is_told_in_one_line(tmp_path):
    refused_by(HeadroomError, "neither the folder of a run nor a series", lambda: series_of(str(tmp_path / "none")))
    for text in (str(tmp_path), f"{tmp_path}@step3"):
        refused_by(HeadroomError, "is a folder, but of no run", lambda text=text: series_of(text))
    refused_by(HeadroomError, "neither the folder of a run nor a series", lambda: series_of("demo"))
    refused_by(UsageError, "not a snapshot of a series", lambda: series_of("org/model@main"))
    refused_by(UsageError, "--step-tokens", lambda: series_of("org/model@step{0,8}"))
    assert series_of("EleutherAI/pythia-70m@step{1000,0}").tokens == (0, 2_097_152_000)
