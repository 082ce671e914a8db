"""What a GPU has measured is shown where there is none, if asked for, and never mixed with what is measured there."""

import json

import pytest

from engine.errors import HeadroomError, UsageError
from engine.placement import devices
from tests.cli.conftest import cli, refused  # noqa: F401
from tests.engine.fixtures import refused_by, write_questions


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_laptop_shows_what_a_gpu_has_measured(cli, tiny_opt, tmp_path, monkeypatch, precision):  # noqa: F811
    questions = write_questions(tmp_path / "own.jsonl", 20)
    shown = ["evaluate", "--model", tiny_opt, "--task", questions, "--precision", precision, "--json"]
    with monkeypatch.context() as patch:  # as if this were a GPU: its keys say so
        for module in ("engine.models.session", "engine.models.loading"):
            patch.setattr(f"{module}.device_class", lambda: "cuda")
        code, measured, _ = cli(*shown)
        assert code == 0 and not json.loads(measured)["cached"]
    monkeypatch.setenv("HEADROOM_DEVICE", "cuda")
    code, found, _ = cli(*shown)
    assert code == 0 and json.loads(found)["cached"] and untimed(found) == untimed(measured)
    refused(cli(*shown, "--mask", "L0H1"), 1, "HEADROOM_DEVICE=cuda", "not stored", "unset it")


def untimed(told: str) -> dict:
    return {name: value for name, value in json.loads(told).items() if "second" not in name and name != "cached"}


def test_a_device_that_is_none_and_one_that_is_here(monkeypatch):
    monkeypatch.setattr(devices, "device_class", lambda: "cpu")
    assert devices.asked_device() is None
    devices.refuse_other_device()
    monkeypatch.setenv("HEADROOM_DEVICE", "cpu")
    devices.refuse_other_device()
    monkeypatch.setenv("HEADROOM_DEVICE", "gpu")
    refused_by(UsageError, "'gpu'; choose one of cpu, cuda", lambda: devices.asked_device())
    monkeypatch.setenv("HEADROOM_DEVICE", "cuda")
    with pytest.raises(HeadroomError):
        devices.refuse_other_device()
