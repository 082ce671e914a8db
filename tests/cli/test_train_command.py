"""`train`: a run goes on bit for bit after kill -9, and whatever is wrong with it is one line that loses nothing."""

import errno
import json
import os
import random
import shutil
import signal
import time
from dataclasses import replace

import numpy as np
import pytest

from cache import files
from engine.errors import HeadroomError, UsageError
from engine.training import model, running, snapshots
from engine.training.folders import Run, open_run, runs_in
from engine.training.locking import LOCK, sole_trainer, trainer
from engine.training.recipe import RECIPES, Recipe
from engine.training.running import begin, train
from engine.training.text import text_for
from tests.cli.conftest import refused
from tests.conftest import HANG_S, IS_THOROUGH
from tests.engine.fixtures import write_words

SHAPE = ("--layers", 1, "--heads", 2, "--width", 16, "--context", 16, "--vocabulary", 280, "--threads", 1, "--smeared")
TINY = Recipe(1, 2, 16, 16, smeared=True, n_vocab=280, batch=4, tokens=1280, snapshots=4)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A folder of 30 files of words, with what such folders hold besides."""
    return write_words(tmp_path_factory.mktemp("text") / "words", 30)


@pytest.fixture
def run(text, tmp_path):
    """A tiny run that was begun."""
    return begin(tmp_path / "run", TINY, text)


def weights(run: Run) -> dict[int, bytes]:
    return {step: (run.snapshot(step) / "model.safetensors").read_bytes() for step in run.steps()}


@pytest.mark.thorough
@pytest.mark.slow("trains two runs and starts one of them three times")
def test_killed_again_and_again_it_ends_in_the_same_weights(text, tmp_path, warm):
    drawn, n_kills = random.Random(), 8 if IS_THOROUGH else 2  # the text is enough for eight
    recipe = ("--batch", 2, "--tokens", 32 * (4600 if IS_THOROUGH else 1000), "--snapshots", 8, "--text", text)
    code = "import sys; from engine.training import running; running.SAVE_EVERY_S = 0.1\n"
    code += "from engine.__main__ import main; sys.exit(main())"

    def started(name):
        environment = {**os.environ, "HEADROOM_CACHE": str(tmp_path / "results")}
        return warm.start(["-c", code, "train", *SHAPE, *recipe, "--out", tmp_path / name, "--json"], env=environment)

    whole = started("whole")
    n_killed = n_resumed = 0
    while n_killed < n_kills:
        state = tmp_path / "run" / "state.pt"
        n_resumed += state.is_file()
        process, before_ns = started("run"), state.stat().st_mtime_ns if state.is_file() else 0
        while process.poll() is None and not (state.is_file() and state.stat().st_mtime_ns > before_ns):
            time.sleep(0.005)
        time.sleep(drawn.uniform(0, 0.4))
        process.kill()
        assert (status := process.wait(HANG_S)) == -signal.SIGKILL, (status, process.communicate())
        process.communicate()
        n_killed += 1
    last = started("run")
    for process in (whole, last):
        out, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, err
    assert n_resumed == n_kills - 1 and json.loads(out)["missing"] == []
    ours, theirs = open_run(tmp_path / "run"), open_run(tmp_path / "whole")
    assert weights(ours) == weights(theirs) and len(ours.steps()) == len(ours.recipe.snapshot_steps())
    logs = [[{**line, "seconds": 0} for line in run.log()] for run in (ours, theirs)]
    assert logs[0] == logs[1] and [line["step"] for line in logs[0]] == list(ours.steps())
    assert {"state.pt", "text.npy"}.isdisjoint(entry.name for entry in ours.folder.iterdir())


def test_closed_between_two_steps_it_goes_on_from_there(run, text, tmp_path, monkeypatch):
    whole = begin(tmp_path / "whole", TINY, text)
    list(train(whole))
    steps = train(run)
    said = [next(steps) for _ in range(4)]
    assert trainer(run.folder) == os.getpid() and said[-1].value["step"] * TINY.step_tokens == said[-1].done
    steps.close()
    assert trainer(run.folder) is None
    made: list[int] = []
    rows_of = model.text_rows
    monkeypatch.setattr(model, "text_rows", lambda recipe, text, step: made.append(step) or rows_of(recipe, text, step))
    rest = list(train(run))
    assert rest[-1].done == rest[-1].total == 1280 and "best prefix matching" in rest[-1].message
    assert made == list(range(said[-1].value["step"], TINY.n_steps)), "a step was made again"
    assert weights(run) == weights(whole)
    assert list(train(run)) == [] and begin(run.folder, TINY, text) == run, "what is done stays"


@pytest.mark.parametrize("full", ["state", "snapshot", "log"])
def test_a_full_disk_in_mid_run_is_one_line_and_loses_nothing(full, run, text, tmp_path, monkeypatch):
    whole = begin(tmp_path / "whole", TINY, text)
    list(train(whole))
    monkeypatch.setattr(running, "SAVE_EVERY_S", -1.0)

    def no_room(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    steps = train(run)
    for _ in range(3):
        next(steps)
    with monkeypatch.context() as patch:
        if full == "log":
            patch.setattr(running.os, "fsync", no_room)
        elif full == "state":
            patch.setattr(files.os, "replace", no_room)
        else:
            patch.setattr(snapshots.shutil, "copyfile", no_room)
        with pytest.raises(HeadroomError, match="No space left on device.*start the run again"):
            list(steps)
    assert not [entry for entry in run.folder.iterdir() if entry.name.endswith(".new")]
    list(train(run))
    assert weights(run) == weights(whole)


def test_a_second_trainer_is_told_so(run, text, cli, warm):
    steps = train(run)
    next(steps)
    with pytest.raises(HeadroomError, match=f"being trained by another process .*{os.getpid()}"):
        list(train(run))
    code = "import sys; from pathlib import Path; from engine.training.running import train\n"
    code += "from engine.training.folders import open_run\nfrom engine.errors import HeadroomError\n"
    code += "try: list(train(open_run(Path(sys.argv[1]))))\nexcept HeadroomError as error: print(error)"
    other = warm.run(["-c", code, run.folder])
    assert f"another process ({os.getpid()})" in other.stdout, other.stderr
    assert len(list(steps)) > 1, "the first goes on"
    (run.folder / LOCK).write_text(json.dumps({"pid": os.getpid(), "began": 1.0}))  # left by one that was killed
    assert trainer(run.folder) is None
    with sole_trainer(run.folder):
        assert trainer(run.folder) == os.getpid()


def test_a_disk_without_locks_is_said(run, monkeypatch):
    def refuse(descriptor, blocking):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("engine.training.locking.lock_descriptor", refuse)
    with pytest.raises(HeadroomError, match="lock cannot be locked .No locks available.; give a folder"):
        list(train(run))


def test_a_run_whose_text_is_gone_makes_it_again(run, text, tmp_path):
    next(train(run))
    (run.folder / "text.npy").write_bytes((run.folder / "text.npy").read_bytes()[:300])
    (run.folder / "held_out.npy").write_bytes(b"")
    with pytest.raises(HeadroomError, match="text.npy.*gone or damaged"):
        list(train(run))
    list(train(begin(run.folder, TINY, text)))
    assert run.is_done
    changed = begin(tmp_path / "changed", TINY, text)
    (changed.folder / "text.npy").unlink()
    (text / "more.txt").write_text("other words " * 3000)
    try:
        with pytest.raises(HeadroomError, match="there is another now"):
            begin(changed.folder, TINY, text)
    finally:
        (text / "more.txt").unlink()


def test_a_beginning_that_was_killed_begins_anew(text, tmp_path):
    (tmp_path / "run").mkdir()
    for name in ("tokenizer.json", "text.npy.new", "held_out.npy", LOCK):
        (tmp_path / "run" / name).write_bytes(b"half")
    assert begin(tmp_path / "run", TINY, text).held_out().shape[1] == 512


def test_a_deleted_snapshot_is_named_and_the_others_stay(run, cli, told, text):
    for step in train(run):
        if step.done == 640:
            shutil.rmtree(run.snapshot(5))
    assert set(run.steps()) == set(TINY.snapshot_steps()) - {5}
    options = ("--batch", 4, "--tokens", 1280, "--snapshots", 4, "--text", text, "--out", run.folder)
    code, out, _ = cli("train", *SHAPE, *options)
    assert code == 0 and "Deleted since: step5" in out and "7 snapshots" in out
    assert told("train", *SHAPE, *options)["missing"] == [5]


@pytest.mark.parametrize("recipe, says", [
    (b"{", "damaged"), (b'{"recipe": 3}', "damaged"),
    (json.dumps({"recipe": {**TINY.as_json(), "version": 99}}).encode(), "another version of Headroom (recipe 99"),
    (json.dumps({"recipe": {**TINY.as_json(), "n_layers": "two"}}).encode(), "cannot be read"),
    (json.dumps({"recipe": {**TINY.as_json(), "n_layers": 9}}).encode(), "9 layers"),
])  # fmt: skip
def test_a_damaged_recipe_is_one_line(recipe, says, run):
    (run.folder / "recipe.json").write_bytes(recipe)
    with pytest.raises(HeadroomError) as error:
        open_run(run.folder)
    assert says in str(error.value)
    assert runs_in(run.folder.parent) == []


def test_a_damaged_state_or_log(run):
    steps = train(run)
    for _ in range(4):
        next(steps)
    steps.close()
    first = (run.folder / "log.jsonl").read_bytes().split(b"\n")[0]
    (run.folder / "log.jsonl").write_bytes(first + b'\n{"step": 0, "tokens": 0}\n3\n\xff\xfe\n{"step": 1, "tok')
    assert run.log() == [json.loads(first)]
    whole = (run.folder / "state.pt").read_bytes()
    (run.folder / "state.pt").write_bytes(whole[:200])
    assert "state.pt is damaged: training begins again" in [step.message for step in train(run)]
    assert [line["step"] for line in run.log()] == list(run.steps()) == list(TINY.snapshot_steps())


@pytest.mark.parametrize("state", [b"", b"\x80\x02}q\x00.", {"model": {}}, {"step": 10**12}, {"optimizer": 3}])
def test_a_state_that_is_none_begins_again_without_a_warning(state, run, recwarn):
    import torch

    next(train(run))
    if isinstance(state, dict):
        begun, [optimizer] = running._beginning(run, model.SMALL_MODELS)
        sound = {"model": begun.state_dict(), "optimizer": optimizer.state_dict(), "step": 3, "seconds": 1.0}
        torch.save(sound | state, run.folder / "state.pt")
    else:
        (run.folder / "state.pt").write_bytes(state)
    resumed, _, step, _ = running._resumed(run, model.SMALL_MODELS)
    fresh, _ = running._beginning(run, model.SMALL_MODELS)
    assert step == 0 and not list(recwarn)
    assert all(torch.equal(one, other) for one, other in zip(resumed.parameters(), fresh.parameters(), strict=True))


def test_damaged_snapshots_are_made_again(run, text):
    list(train(run))
    before, log = weights(run), (run.folder / "log.jsonl").read_bytes()
    cut = run.snapshot(2) / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:1000])
    (run.snapshot(10) / "model.safetensors").unlink()
    (run.snapshot(20) / "config.json").write_text("{")
    (run.folder / "held_out.npy").unlink()
    messages = [step.message for step in train(begin(run.folder, TINY, text))]
    assert weights(run) == before and "making damaged snapshots again (3)" in messages
    assert (run.folder / "log.jsonl").read_bytes() == log and not (run.folder / "text.npy").exists()
    assert run.has_held_out and list(train(run)) == []


def test_a_shipped_run_is_measured_on_the_built_in_passages(cli):
    """Its held-out text is not part of the app."""
    code, printed, _ = cli("trajectory", "runs/smeared", "--quantities", "loss")
    assert code == 0 and "(the built-in passages)" in printed


def test_a_loss_that_is_no_number_ends_the_run(text, tmp_path):
    import torch

    wild = begin(tmp_path / "wild", replace(TINY, rate=0.999, warm_up=0, tokens=64 * 30), text)
    steps = train(wild)
    next(steps)
    frame = steps.gi_yieldfrom.gi_frame.f_locals
    with torch.no_grad():
        frame["model"].embed.weight.fill_(float("nan"))
    with pytest.raises(HeadroomError, match="is not finite.*rate below 0.999"):
        list(steps)


def test_text_of_any_kind(tmp_path):
    words = " ".join(f"word{number % 97} and{number % 89}" for number in range(60_000))
    folder = tmp_path / "odd"
    (folder / ".hidden").mkdir(parents=True)
    for number in range(12):
        (folder / f"{number}.txt").write_bytes(
            words[:30_000].encode() + b"\xff\xfe odd \xc3" + words[30_000:60_000].encode()
        )
    (folder / "empty").write_bytes(b"")
    (folder / "picture").write_bytes(bytes(range(256)) * 100)
    (folder / "late.bin").write_bytes(b"a" * 20_000 + b"\0" * 20_000)
    (folder / ".hidden" / "x.txt").write_text(words)
    os.symlink(folder, folder / "round")
    os.symlink(folder / "nowhere", folder / "lost")
    found = text_for(20_000, 300, folder)
    again = text_for(5_000, 300, folder)
    assert "13 files" in found.source and (found.tokens[:5001] == again.tokens).all() and found.digest == again.digest
    assert "�" in found.tokenizer.decode(found.tokens.tolist()) and found.held_out.max() < 300
    one = tmp_path / "one.txt"
    one.write_text(words)
    alone = text_for(20_000, 300, one)
    told = alone.tokenizer.decode(alone.tokens.tolist(), skip_special_tokens=True)
    assert words.startswith(told) and (alone.tokens == 0).sum() == 1
    held = alone.tokenizer.decode(alone.held_out[0].tolist())
    assert held in words[len(words) * 9 // 10 :]


def test_a_long_file_is_cut_into_pieces_that_give_all_of_it(tmp_path, monkeypatch):
    from engine.training import text as module

    words = " ".join(f"word{number % 97} and{number % 89}" for number in range(9_000))
    (tmp_path / "one.txt").write_text(words)
    monkeypatch.setattr(module, "PIECE_CHARACTERS", 999)
    found = text_for(30_000, 300, tmp_path / "one.txt")
    assert words.startswith(found.tokenizer.decode(found.tokens.tolist(), skip_special_tokens=True))
    assert len(found.tokens) == 30_001 and (found.tokens == 0).sum() == 1


def test_bad_input_gets_one_line(cli, text, tmp_path):
    out = tmp_path / "run"

    def trained(*more, where=out):
        return cli("train", *SHAPE, "--out", where, *more)

    some = ("--text", text, "--tokens", 1280, "--batch", 4)
    refused(trained("--text", tmp_path / "gone"), 1, "gone does not exist", "give a folder")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "a").write_bytes(bytes(5000))
    for found in ("bare", "bare/a"):
        refused(trained("--text", tmp_path / found), 1, "no training text found", found)
    (tmp_path / "short.txt").write_text("a few words")
    refused(trained("--text", tmp_path / "short.txt"), 1, "too short for a vocabulary of 280", "give more text")
    (tmp_path / "shorter.txt").write_text("abcdefghij klmnop qrstuv wxyz aabbcc ddeeff gghhii jjkkll mmnnoo " * 3)
    refused(trained("--text", tmp_path / "shorter.txt"), 1, "512 tokens")
    refused(trained("--text", text, "--tokens", 10**9), 1, "the run reads", "give more text, or fewer tokens")
    refused(trained("--vocabulary", 100), 2, "--vocabulary is 100", "259")
    refused(trained("--width", 15), 2, "a width of 15 for 2 heads")
    refused(trained("--period", "8:64"), 2, "--period is '8:64'; write two whole numbers like 8-64")
    refused(trained("--repeats", "0.5", "--period", "9-60"), 2, "periods 9 to 60")
    refused(trained("--tokens", 10), 2, "10 tokens", "one step")
    assert not out.exists(), "nothing is left of what was refused"
    (tmp_path / "file").write_text("")
    refused(trained(*some, where=tmp_path / "file" / "run"), 1, "no run can be written into", "another folder")
    refused(trained(*some, where=text), 2, "not empty and holds no run", "give a new folder")
    assert trained(*some)[0] == 0
    refused(trained(*some, "--seed", 1), 2, "holds another run", "give another folder")


def test_every_named_recipe_is_whole():
    for name, each in RECIPES.items():
        assert each.title and each.words and each.recipe.n_steps > 100, name
        assert not each.control or RECIPES[each.control].recipe.tokens == each.recipe.tokens


def test_a_run_on_repeats_alone_reads_no_text_but_is_measured_on_it(text, tmp_path):
    with pytest.raises(UsageError, match="share of repeats"):
        Recipe(repeats=2)
    made = begin(tmp_path / "run", replace(TINY, repeats=1.0, period=(2, 8), alphabet=9), text)
    assert np.load(made.folder / "text.npy").shape == (1,)
    lines = [step.value for step in train(made)]
    assert lines[-1]["step"] == made.recipe.n_steps and lines[-1]["loss"] > 0
