"""What is shown as the reproducing command can be copied: to where the app was started, from wherever it is."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pages.ui.downloads.origin import executable
from tests.conftest import HANG_S, REPOSITORY


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder with the commands that `make run` leaves; the shell finds none of them by name."""
    commands = tmp_path / "a clone" / ".venv" / "bin"
    commands.mkdir(parents=True)
    python = commands / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(commands.parent.parent)
    return commands


def test_the_command_is_named_as_the_shell_finds_it(clone, tmp_path, monkeypatch):
    assert executable() == "headroom", "nothing is there to point to"
    (clone / "headroom").touch(mode=0o755)
    assert executable() == ".venv/bin/headroom"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert executable() == str(clone / "headroom")
    monkeypatch.setenv("PATH", str(clone), prepend=":")
    assert executable() == "headroom"


def test_make_leaves_a_command_that_runs_from_any_folder(clone, tmp_path):
    home = clone.parent.parent
    for name in ("Makefile", "headroom.py", "cache", "engine", "pages"):
        (home / name).symlink_to(REPOSITORY / name)
    made = subprocess.run(["make", ".venv/bin/headroom"], cwd=home, capture_output=True, text=True, timeout=HANG_S)
    assert made.returncode == 0, made.stderr
    line = shlex.join([str(clone / "headroom"), "sweep", "--by", "two words"])
    said = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)
    assert said.returncode == 2 and "headroom sweep: argument --by: 'two words' is unknown" in said.stderr
    assert executable() == ".venv/bin/headroom" and Path(executable()).is_file()
