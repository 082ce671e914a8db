"""Where numbers come from: the Python program that a screen gives finds the screen's own number, its command can be
copied to where the app was started, from wherever it is, and the receipts are those of the stored records."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from engine.heads.circuits import feeding
from engine.heads.induction import induction
from engine.receipts import facts, read_receipts
from pages.ui.downloads.actions import EXPORT
from pages.ui.downloads.origin import executable
from pages.ui.downloads.provenance import SLOT
from pages.ui.page import runtime
from tests.conftest import HANG_S, REPOSITORY
from tests.engine.fixtures import target_in
from tests.pages.conftest import N, figure, opened, printed_by_the_program, said


def test_the_program_finds_the_accuracy_after_pruning(open_app):
    at = open_app(mask="L1H2", task="demo_copy", shots="1", same="true")
    assert printed_by_the_program(at).startswith(f"{figure(at)[0]} right (95% ")


def test_the_program_has_the_finding_of_two_runs(open_app):
    at = open_app("training")
    [finding] = [each.value for each in at.markdown if each.value.startswith("#### ")]
    assert finding.removeprefix("#### ").replace("**", "") in printed_by_the_program(at).splitlines()


def test_receipts_are_those_of_the_records_that_are_shown(open_app):
    at = open_app(heads="40")
    assert not at.get("popover")[0].proto.popover.open
    opened(at, EXPORT)
    runtime.jobs().join(SLOT, HANG_S)
    opened(at, EXPORT)
    parts = {part.name: part for part in runtime.jobs().status(SLOT).value}
    for name in ("Full model", "Pruned model"):
        told = parts[name].receipts
        assert {each["kind"] for each in told} == {"answers"} and len(told) * 16 >= N
    assert parts["Full model"].receipts[0]["mask"] == "" != parts["Pruned model"].receipts[0]["mask"]
    assert {each["kind"] for each in parts["Importance"].receipts} == {"heads", "answers"}
    assert parts["Pruned model"].first <= parts["Pruned model"].last and parts["Pruned model"].seconds > 0
    words = said(at)
    [listed] = [each.value for each in at.dataframe if "Records" in each.value]
    for part in (parts["Full model"], parts["Pruned model"]):
        [row] = listed[listed["Part"] == part.name].to_dict("records")
        assert (row["Records"], row["Shipped"]) == (part.n, part.n_shipped) and row["Last"] == part.last
    told = facts(parts["Full model"].receipts)
    assert len(told["Versions"]) == 1 and told["Versions"][0] in words and "torch" in words


def test_a_receipt_that_lacks_what_came_later_is_read(session):
    old = {"name": "m", "model": "0" * 40, "precision": "fp32", "bos": True, "python": "3", "machine": "x86_64",
           "device": "cpu", "versions": {"torch": "2"}, "measured_at": "2026-01-01", "seconds": 1}  # fmt: skip
    told = facts([old])
    assert told["Machine"] == ["cpu, x86_64"] and told["Matrix products"] == ["the library's own"]


def test_nothing_is_measured_to_find_a_receipt(session, tiny_opt):
    target = target_in(session, tiny_opt)
    wanted = {"whole": feeding(target, (0, 0)), "missing": induction(target, "olsson")}
    *_, last = read_receipts(wanted, session)
    assert [part.n for part in last.value] == [0, 0] and session.models.loaded is None


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
    line = shlex.join([str(clone / "headroom"), "sweep", "--order", "two words"])
    said = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)
    assert said.returncode == 2 and "headroom sweep: argument --order: 'two words' is unknown" in said.stderr
    assert executable() == ".venv/bin/headroom" and Path(executable()).is_file()
