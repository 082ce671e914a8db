"""`headroom doctor` states what a bug report needs, and no path but the store's."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys

import pytest

from engine.requests import doctor
from tests.conftest import REPOSITORY


def test_the_report_names_versions_kernels_the_store_and_what_is_included(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADROOM_PRODUCTS", "fp32")
    code, out, lines = cli("doctor", "--json")
    found = json.loads(out)
    assert code == 0 and lines == [] and found["problems"] == []
    assert found["versions"]["torch"] == importlib.metadata.version("torch")
    assert set(found["kernels"].values()) == {"bf16 fp32, int8 fp32, gradient fp32, attention fp32, fp32 own"}
    assert found["store"]["store"] == str(tmp_path / "results")
    assert found["included"]["included tasks"] == 26 and found["included"]["included training runs"] == 20


def test_no_path_but_the_stores_is_printed(cli, tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.mkdir()
    monkeypatch.setenv("HEADROOM_TASK_DATA", str(secret))
    monkeypatch.setattr("engine.requests.doctor.Path.home", lambda: tmp_path)
    code, out, _ = cli("doctor")
    assert code == 0 and "store: ~/results\n" in out
    assert "HEADROOM_TASK_DATA: set\n" in out and "secret" not in out and str(tmp_path) not in out


def test_a_missing_part_or_library_is_a_problem_and_exit_code_1(cli, monkeypatch):
    monkeypatch.setattr(doctor, "passages", lambda: [])
    monkeypatch.setattr(doctor, "LIBRARIES", ("torch", "no-such-library"))
    code, out, _ = cli("doctor")
    assert code == 1 and "torch" in out
    assert "problem: no-such-library is not installed; run pip install -r requirements.txt\n" in out
    assert "problem: included passages is missing; reinstall Headroom" in out


@pytest.mark.slow("starts a process that imports torch")
def test_threads_of_torch_sleep_while_they_wait(tmp_path):
    own = {"HEADROOM_CACHE": str(tmp_path), "OMP_DISPLAY_ENV": "TRUE"}
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | own
    command = [sys.executable, str(REPOSITORY / "headroom.py"), "doctor"]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    assert re.search(r"OMP_WAIT_POLICY *= *'PASSIVE'", printed)
