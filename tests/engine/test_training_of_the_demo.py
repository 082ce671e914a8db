"""What is said of the embedded model's training is what its log and its weights say."""

import itertools

import numpy as np
import pytest

from engine import demo
from engine.demo.making import runs
from engine.demo.making.card import losses_table
from engine.models.masks import Mask
from engine.progress import final
from engine.texts.tokenloss import token_losses
from engine.training.trajectory import decode
from tests.engine.fixtures import foreign_run, target_in

RECORD = demo.runs_folder() / f"{demo.RUN}.safetensors"


def line(step, **more):
    return {"step": step, "tokens": 2048 * step, "text": 8 - step / 1000, **more}


def test_the_table_of_losses_has_the_logs_numbers():
    log = [line(0), line(61, loss={"repeats": 7.8, "demo_copy": 1.0}, prefix_matching=[["L1H0", 0.4], ["L2H0", 0.61]]),
           line(122, loss={"text": 6.4, "episodes": 2.255}, first_copy=8.5, second_copy=3.25)]  # fmt: skip
    heads, rule, *rows = losses_table(log).splitlines()
    assert heads.count("|") == rule.count("|") == 10 and heads.startswith("| Tokens, M | Step | Held-out prose |")
    assert [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows] == [
        ["0.00", "0", "8.00", "–", "–", "–", "–", "–", "–"],
        ["0.12", "61", "7.94", "–", "7.80", "–", "–", "–", "0.61"],
        ["0.25", "122", "7.88", "6.40", "–", "2.25", "8.50", "3.25", "–"],
    ]


def test_of_many_snapshots_a_few_are_shown_from_the_first_to_the_last():
    rows = losses_table([line(step) for step in range(45)], most=10).splitlines()[2:]
    steps = [int(row.split("|")[2]) for row in rows]
    assert len(steps) == 10 and steps[0] == 0 and steps[-1] == 44
    assert {b - a for a, b in itertools.pairwise(steps)} == {4, 5}
    assert len(losses_table([line(0)]).splitlines()) == 3
    with pytest.raises(ValueError, match="no line yet"):
        losses_table([])


def test_a_run_becomes_the_record_that_is_shipped(tiny_opt, tmp_path, monkeypatch):
    run = foreign_run(tmp_path / "run", tiny_opt, (0, 8))
    monkeypatch.setattr(runs, "runs_folder", lambda: tmp_path / "shipped")
    monkeypatch.setattr("sys.argv", ["runs", "--work", str(tmp_path / "work"), "--embedded", str(run.folder)])
    runs.main()
    [file] = (tmp_path / "shipped").iterdir()
    found = decode(file.read_bytes())
    assert (file.name, found.name, found.label) == ("embedded.safetensors", demo.RUN, run.label)
    assert list(found.tokens) == [0, 800] and list(found.ablated) == [0, 1] and found.by_index.dtype == np.float16
    assert len(found.passages) == len(demo.passages()) and str(tmp_path).encode() not in file.read_bytes()


@pytest.mark.skipif(not RECORD.is_file(), reason="the record of the embedded model's run is not made yet")
def test_the_last_snapshot_of_the_record_is_the_embedded_model(session):
    found, passage = decode(RECORD.read_bytes()), min(demo.passages(), key=lambda each: len(each.text))
    target = target_in(session, demo.model_folder())
    losses = final(token_losses(target, passage.text, Mask.full(target.shape)).run(session))
    assert found.passages[passage.title].losses[-1] == pytest.approx(losses.loss_nats, abs=1e-3, nan_ok=True)
    assert found.heads["prefix_matching"].shape[1:] == (target.shape.n_layers, target.shape.n_heads)
    assert found.name == demo.RUN and RECORD.stat().st_size < 1.5e6
