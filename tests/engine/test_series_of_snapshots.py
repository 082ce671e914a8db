"""A series of snapshots: in order, what is here, what a download is, and which hold the same weights."""

import json
import shutil

import pytest

from engine.errors import HeadroomError, UsageError
from engine.models import hub, series
from engine.models.loading import LoadSpec, identify
from tests import hub_stand_in as stand_in

SERIES = "someone/tiny@step{3000,0,2000}"
COMMITS = {"step0": "a" * 40, "step2000": "b" * 40, "step3000": "c" * 40}


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


def fetch(snapshot):
    *_, last = hub.download(hub.look_up(snapshot.name))
    return last.value


def test_published_snapshots_in_order_with_the_size_of_what_is_not_here(served):
    away = series.series_of(SERIES)
    assert [(each.name, each.step, each.folder) for each in away] == [
        (f"someone/tiny@step{step}", step, None) for step in (0, 2000, 3000)
    ]
    assert served.requests == [] and series.with_equal_weights(away) == ()  # nothing is asked, nothing is claimed
    *between, last = series.looked_up(away)
    assert [(each.done, each.total) for each in between] == [(0, 3), (1, 3), (2, 3)]
    small = sum(len(content) for name, content in served.files.items() if name != "model.safetensors")
    assert last.value.missing_bytes == small + 2 * len(served.files["model.safetensors"])  # shared files count once
    assert last.value.refusal is None
    folder = fetch(away[1])
    held = series.series_of(SERIES)
    assert [each.folder for each in held] == [None, folder, None]
    *_, last = series.looked_up(held)
    assert [str(offer.name) for offer in last.value.offers] == ["someone/tiny@step0", "someone/tiny@step3000"]
    assert last.value.missing_bytes == len(served.files["model.safetensors"])  # that of step 3000 is here already


def test_equal_weights_are_pointed_out_before_and_after_the_download(served):
    away = series.series_of(SERIES)
    *_, last = series.looked_up(away)
    told = series.with_equal_weights(away, downloads=last.value)
    assert [[each.step for each in group] for group in told] == [[2000, 3000]]
    assert series.in_words(told[0], away) == (
        "step2000 holds the same weights as step3000: probably the final ones, whatever the name"
    )
    assert series.in_words(away[:2], away) == "step0 and step2000 hold the same weights: one name alone can be right"
    for each in away:
        fetch(each)
    here = series.series_of(SERIES)
    assert [[each.step for each in group] for group in series.with_equal_weights(here)] == [[2000, 3000]]


def test_a_disk_that_is_too_small_for_all_of_them_is_said_once(served, monkeypatch):
    *_, last = series.looked_up(series.series_of(SERIES))
    monkeypatch.setattr(hub.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(1, 1, 1000))
    assert last.value.refusal.startswith("3 revisions of someone/tiny are ") and "1,000 B is free" in last.value.refusal


def test_a_revision_that_the_hub_does_not_have(served):
    with pytest.raises(HeadroomError, match="has no revision 'step7'"):
        list(series.looked_up(series.series_of("someone/tiny@step{0,7}")))


def test_a_run_is_a_series_of_all_its_snapshots(tiny_opt, tmp_path, store):
    for step in (512, 0, 64):
        shutil.copytree(tiny_opt, tmp_path / "run1" / f"step{step}")
    weights = tmp_path / "run1" / "step0" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    (tmp_path / "run1" / "recipe.json").write_text(json.dumps({}))
    run = str((tmp_path / "run1").resolve())
    found = series.series_of(f" {run} ")
    assert [(each.name, each.step) for each in found] == [(f"{run}@step{step}", step) for step in (0, 64, 512)]
    assert [each.step for each in series.series_of(f"{run}@step{{512,0}}")] == [0, 512]
    assert [[each.label for each in group] for group in series.with_equal_weights(found, store)] == [
        ["step64", "step512"]
    ]
    assert identify(LoadSpec(found[0].name)).name == found[0].name
    assert identify(LoadSpec(found[1].name)).digest == identify(LoadSpec(found[2].name)).digest
    assert [each.step for each in series.series_of("demo")] == [None]
    with pytest.raises(UsageError, match="no snapshot step7"):
        series.series_of(f"{run}@step{{0,7}}")
