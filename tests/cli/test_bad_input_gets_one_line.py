"""Whatever is wrong with what a user gives, the answer is one plain line and an exit code, never a traceback."""

import ast
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from cache.store import Store
from tests.cli.conftest import refused
from tests.conftest import HANG_S, REPOSITORY
from tests.engine.fixtures import configured, write_questions


@pytest.fixture
def questions(tmp_path):
    return write_questions(tmp_path / "own.jsonl", 20)


def of_100_tb(folder):
    """Weights of which the file holds only the header and a hole."""
    header = {"w": {"dtype": "F16", "shape": [50_000_000_000, 1000], "data_offsets": [0, 2000 * 1000]}}
    raw = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + 2_000_000)


DAMAGE = {
    "no folder": (shutil.rmtree, ("model", "no such model folder")),
    "no config": (lambda folder: (folder / "config.json").unlink(), ("config.json", "missing")),
    "another kind": (lambda folder: configured(folder, model_type="mamba"), ("mamba", "opt", "llama")),
    "too large": (of_100_tb, ("needs about", "is free", "would fit")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_folder_that_is_no_whole_model(damage, cli, questions, tiny_opt, tmp_path):
    folder = Path(shutil.copytree(tiny_opt, tmp_path / "model"))
    change, parts = DAMAGE[damage]
    change(folder)
    result = cli("evaluate", "--model", folder, "--task", questions)
    refused(result, 1, *parts)
    assert len(result[2][0]) < 600


def test_refusal_names_the_smaller_precision(tiny_opt, monkeypatch):
    from engine.errors import HeadroomError
    from engine.models import loading
    from engine.placement import devices, needs

    identity = loading.identify(loading.LoadSpec(str(tiny_opt)))
    free = needs.load_needs(identity.model_config, "bf16").total
    for module in (needs, devices):
        monkeypatch.setattr(module, "free_bytes", lambda: free)
    monkeypatch.setattr(devices, "free_on_disk", lambda folder: 0)
    with pytest.raises(HeadroomError, match="bf16 needs .* and would fit"):
        loading.load(loading.LoadSpec(str(tiny_opt), "fp32"))


def test_unknown_task(cli, tiny_opt):
    refused(cli("evaluate", "--model", tiny_opt, "--task", "piqa", "--chat"), 1, "has no chat template", "as typed")
    refused(cli("evaluate", "--model", tiny_opt, "--task", "picka"), 2, "picka", "did you mean piqa")


def test_missing_column_in_row_17(cli, tiny_opt, tmp_path):
    rows = [{"goal": "Open the door", "sol1": "Turn the key", "sol2": "Eat the key", "label": 0} for _ in range(20)]
    del rows[16]["sol2"]
    for split in ("train", "validation"):
        (tmp_path / "piqa").mkdir(exist_ok=True)
        (tmp_path / "piqa" / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = cli("evaluate", "--model", tiny_opt, "--task", "piqa", "--task-data", tmp_path)
    refused(result, 1, "row 17", "'sol2'", ".jsonl")


@pytest.mark.parametrize(
    "row, part",
    [
        ({"context": "x", "choices": ["a", "b"]}, "'gold' is missing"),
        ({"context": "x", "choices": ["a", "b"], "gold": True}, "0 to 1, got True"),
        ({"context": "x", "choices": ["a"], "gold": 0}, "'choices'"),
        ([1], "must be a JSON object"),
    ],
)
def test_own_questions_are_checked_row_by_row(row, part, cli, tiny_opt, questions):
    lines = questions.read_text().splitlines()
    lines[2] = json.dumps(row)
    questions.write_text("\n".join(lines))
    refused(cli("evaluate", "--model", tiny_opt, "--task", questions), 1, "row 3", part)


def test_too_few_rows_for_the_examples(cli, tiny_opt, tmp_path):
    three = write_questions(tmp_path / "three.jsonl", 3)
    said = ("too few rows for 5 examples", "there are 3", "take fewer examples")
    refused(cli("evaluate", "--model", tiny_opt, "--task", three, "--shots", "5"), 1, *said)


def test_empty_file_and_no_file(cli, tiny_opt, tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    refused(cli("evaluate", "--model", tiny_opt, "--task", tmp_path / "empty.jsonl"), 1, "empty.jsonl", "is empty")
    refused(
        cli("evaluate", "--model", tiny_opt, "--task", tmp_path / "gone.jsonl"), 1, "gone.jsonl", "no such task file"
    )
    refused(cli("evaluate", "--model", tiny_opt, "--task", "piqa", "--task-data", tmp_path / "gone"), 1, "gone")


@pytest.mark.parametrize("flag, level", [("--prune-heads", "120"), ("--prune-ffns", "nan"), ("--prune-ffns", "33.333")])
def test_levels(flag, level, cli, tiny_opt, questions):
    refused(cli("evaluate", "--model", tiny_opt, "--task", questions, f"{flag}={level}"), 2, level[:5], "pruning level")


@pytest.mark.parametrize(
    "arguments, part",
    [
        (["--mask", "L99H0"], "'L99H0': this model has layers 0 to 1"),
        (["--precision", "int4"], "'int4'"),
        (["--limit", "1000001"], "--limit is 1000001; choose 1 to 1,000,000"),
        (["--seed", "9" * 5000], "--seed is '999"),
        (["--seed", "1e400"], "give a whole number"),
        (["--int8-threshold", "nan"], "--int8-threshold is nan; choose 0 to"),
        (["--int8-threshold", "1e400"], "--int8-threshold is 1e400"),
        (["--mask", f"L{'9' * 5000}H0"], "cannot be read"),
        (["--mask", "![x](http://192.0.2.1/a.png)"], "cannot be read"),
        (["--prune-heads", "9" * 5000], "pruning level"),
        (["--cache", "a" * 300], "--cache 'aaa"),
        (["--cache", "a\0b"], "embedded null"),
        (["--cache", "~nosuchuser/results"], "~nosuchuser"),
        (["--task-data", "~nosuchuser/rows", "--task", "piqa"], "~nosuchuser"),
        (["--task", "~nosuchuser/own.jsonl"], "~nosuchuser"),
        (["--task", "a" * 300], "is unknown"),
    ],
)
def test_options(arguments, part, cli, tiny_opt, questions):
    refused(cli("evaluate", "--model", tiny_opt, "--task", questions, *arguments), 2, part)


def test_what_nobody_foresaw_is_one_line_and_a_log(cli, tiny_opt, questions, monkeypatch):
    def broken(*arguments):
        raise ZeroDivisionError("by\nnothing")

    monkeypatch.setattr("engine.requests.base.select", broken)
    result = cli("evaluate", "--model", tiny_opt, "--task", questions)
    refused(result, 1, "headroom: unexpected: ZeroDivisionError: by nothing; ", "please report it")
    log = Path(re.search(r"; (\S+\.log) says", result[2][0])[1])
    assert "Traceback" in log.read_text() and "broken" in log.read_text()
    log.unlink()


def test_a_library_that_makes_another_error_of_ctrl_c(cli, tiny_opt, questions, monkeypatch):
    def interrupted(*arguments):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ImportError("half of it was imported") from error

    monkeypatch.setattr("engine.requests.base.select", interrupted)
    before = signal.getsignal(signal.SIGINT)
    refused(cli("evaluate", "--model", tiny_opt, "--task", questions), 130, "headroom: canceled; finished parts")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_place_that_cannot_be_written_to_is_said_before_any_work(cli, tmp_path, monkeypatch):
    """Of every command in test_requests.py, but for what the system allows."""
    monkeypatch.setattr(Store, "get", lambda *more: pytest.fail("work was begun"))
    monkeypatch.setattr(os, "access", lambda *more: False)
    refused(cli("induction", "--out", tmp_path / "x.csv"), 1, "x.csv", "no permission")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("correlate", "--shots", "0,many"), "'0,many'"),
        (("correlate", "--shots", ","), "no tasks or shot counts"),
        (("correlate", "--shots", "-1"), "shots is -1"),
        (("correlate", "--score", "ffns", "--induction"), "--induction compares heads"),
        (("sweep", "--head-levels", "0,120"), "120"),
    ],
)
def test_options_of_studies(arguments, part, cli, tiny_opt, questions, tmp_path):
    rest = ("--model", tiny_opt, "--precision", "fp32", "--tasks", questions, "--out", tmp_path / "x.csv")
    refused(cli(*arguments, *rest), 2, part)


def test_a_paper_study_of_nothing_says_why(cli, tiny_opt, tmp_path):
    command = ("sweep", "--model", tiny_opt, "--precision", "fp32", "--tasks", "nothing", "--shots", "0")
    code, out, lines = cli(*command, "--out", tmp_path / "x.csv")
    assert code == 1 and lines[-1] == "headroom: nothing could be measured; the lines above say why"
    assert "not measured: nothing, 0 shots: task 'nothing' is unknown" in out
    refused(cli(*command, "--out", tmp_path / "x.xlsx"), 2, "x.xlsx", ".csv or .parquet")
    file = tmp_path / "file"
    file.write_text("")
    refused(cli(*command, "--preset", "paper", "--out", file), 1, "cannot make the folder")
    refused(cli(*command, "--preset", "paper", "--out", "a\0.csv"), 2, "cannot be the name of a file")


def test_a_place_that_is_none_is_said_once_for_all_models(cli, monkeypatch):
    monkeypatch.setenv("HEADROOM_PLACE", "cpu:4,tape")
    refused(cli("models"), 2, "HEADROOM_PLACE", "'tape'", "such as cpu:4,disk")


@pytest.mark.parametrize(("by", "words"), [
    (signal.SIGINT, ["tasks"]), (signal.SIGTERM, ["--server.port=1", "--server.headless=true"]),
], ids=["command", "app"])  # fmt: skip
def test_a_signal_while_the_program_starts_is_one_line(by, words, tmp_path):
    """The signal arrives at the first heavy import; Python itself answers one that comes before headroom.py runs."""
    code = f"""
import builtins, signal, runpy, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores Ctrl-C
real = builtins.__import__
def interrupted(name, *more, **named):
    if name in ("engine.cli", "streamlit") or name == "engine" and more[2:3] == (("cli",),):
        builtins.__import__ = real
        signal.raise_signal({int(by)})
    return real(name, *more, **named)
builtins.__import__ = interrupted
sys.argv = ["headroom.py", *{words!r}]
runpy.run_path("headroom.py", run_name="__main__")
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=HANG_S)
    assert (ran.returncode, ran.stderr.splitlines()) == (130, ["headroom: canceled"])


@pytest.mark.parametrize("module", ["headroom", "engine.__main__"])
def test_nothing_is_imported_before_ctrl_c_is_heard(module):
    code = f"import sys; before = set(sys.modules); import {module}; print(sorted(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=HANG_S)
    assert set(ast.literal_eval(ran.stdout)) <= {"__future__", "engine", module}


def test_warnings_of_libraries_stay_off_the_terminal(tmp_path, monkeypatch, capsys):
    import headroom

    monkeypatch.setattr(sys, "argv", ["headroom", "cache", "size", "--cache", str(tmp_path)])
    assert headroom.main() == 0
    warnings.warn("of a library", stacklevel=1)  # an error in tests, unless it is silenced
    assert "of a library" not in capsys.readouterr().err
