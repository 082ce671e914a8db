"""Promise P8: with model and data on this computer, nothing connects anywhere else, and no telemetry is sent."""

import json
import socket
import tomllib

import pytest

from engine.__main__ import main
from tests.conftest import REPOSITORY
from tests.engine.fixtures import write_questions


def test_the_guard_of_these_tests_works():
    with socket.socket() as outside, pytest.raises(AssertionError, match="tried to connect"):
        outside.connect(("192.0.2.1", 80))


@pytest.mark.parametrize("task", ["embedded", "own"])
def test_a_run_from_the_command_line(task, tmp_path, tiny_opt, capsys, monkeypatch):
    """Under the guard of tests/conftest.py that fails any connection beyond 127.0.0.1, the hub not declared offline."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    name = "demo_copy" if task == "embedded" else str(write_questions(tmp_path / "own.jsonl", 20))
    model = "demo" if task == "embedded" else str(tiny_opt)
    for command in (
        ["evaluate", "--prune-heads", "50", "--ranking-questions", "16"],
        ["importance", "--out", str(tmp_path / "scores.csv")],
    ):
        shared = ["--model", model, "--task", name, "--limit", "16", "--cache", str(tmp_path / "results"), "--json"]
        assert main([*command, *shared]) == 0
        assert json.loads(capsys.readouterr().out)["n"] == 16


def test_streamlit_is_told_to_send_and_to_show_nothing_outside():
    settings = tomllib.loads((REPOSITORY / ".streamlit" / "config.toml").read_text())
    assert settings["browser"]["gatherUsageStats"] is False
    assert settings["server"]["address"] == "127.0.0.1"
    assert settings["server"]["allowedHosts"] == ["localhost", "127.0.0.1"]
