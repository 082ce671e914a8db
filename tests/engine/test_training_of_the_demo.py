"""What is said of the embedded model's training is what its log and its weights say."""

import numpy as np
import pytest

from engine import demo
from engine.demo.making import runs
from engine.models.masks import Mask
from engine.progress import final
from engine.texts.tokenloss import token_losses
from engine.training.trajectory import decode
from tests.engine.fixtures import foreign_run, target_in

RECORD = demo.runs_folder() / f"{demo.RUN}.safetensors"


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
