"""`export` writes a folder and tells what `headroom.json` says, or refuses in one line; `speed` prints its table."""

import json
import os
import signal

import pandas as pd

from tests.cli.conftest import refused
from tests.conftest import HANG_S
from tests.engine.fixtures import write_questions


def test_what_is_printed_is_what_lies_beside_the_weights(cli, told, tiny, tmp_path):
    task = write_questions(tmp_path / "own.jsonl", 12)
    levels = ("--prune-heads", "50", "--order", "random", "--task", task)
    words = ("export", *tiny, *levels, "--form", "small", "--out", tmp_path / "out")
    printed = told(*words)
    assert printed["heads_pruned"] == 4 and printed["parameters"] < printed["parameters_before"]
    kept = json.loads((tmp_path / "out" / "headroom.json").read_text())
    assert kept.items() <= printed.items() and kept["command"].startswith("headroom export --model")
    assert kept["accuracy"]["n"] == 12 and kept["largest_logit_difference"] < 1e-4
    refused(cli(*words), 2, str(tmp_path / "out"), "is there already")
    found = told("evaluate", "--model", tmp_path / "out", "--precision", "fp32", "--task", task)
    assert found["acc"] == kept["accuracy"]["pruned"]["acc"]


def test_a_run_that_is_told_to_stop_leaves_nothing(tiny, tmp_path, warm):
    slow = "import time\n"
    slow += "def stay(*a): print('there', flush=True); time.sleep(600); yield\n"
    slow += "import engine.export.exporting as e; e.write_weights = stay\n"
    slow += "import sys; from engine.__main__ import main; sys.exit(main(sys.argv[1:]))\n"
    words = ("export", *tiny, "--mask", "L0H1", "--out", tmp_path / "out")
    environment = {**os.environ, "HEADROOM_CACHE": str(tmp_path / "results")}
    run = warm.start(["-c", slow, *words], env=environment)
    while run.stdout.readline().strip() != "there":
        assert run.poll() is None, run.communicate()
    assert (tmp_path / "out.unfinished").is_dir()
    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=HANG_S)
    assert run.returncode == 130 and "Traceback" not in said and not list(tmp_path.glob("out*"))


def test_the_table_of_what_is_saved(cli, told, tiny, tmp_path):
    words = ("speed", *tiny, "--mask", "L*H0-1", "--out", tmp_path / "saved.csv")
    printed = told(*words)
    rows = {row["quantity"]: row for row in printed["rows"]}
    assert (rows["Keys and values"]["full"], rows["Keys and values"]["pruned"]) == (512, 256)
    frame = pd.read_csv(tmp_path / "saved.csv")
    assert frame["quantity"].tolist() == list(rows) and frame["unit"].tolist()[0] == "tokens/s"
    assert not printed["cached"] and told(*words)["cached"] and not told(*words, "--remeasure")["cached"]
    assert "Prompt" in cli(*words)[1]
