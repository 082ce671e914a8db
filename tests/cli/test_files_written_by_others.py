"""Files that another process or person may have written: whatever they hold is one line, in bounded time, and makes no
file outside the folder that they are for."""

import copy
import json
import os
import random
import shutil
import signal
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cache.typed_json import InvalidFile, decode_json, read_json
from engine.accuracy.evaluation import Answers
from engine.accuracy.harness_logs import harness_answers
from engine.checkpoints import hub
from engine.checkpoints.identity import identify_folder
from engine.checkpoints.tensor_index import contents
from engine.errors import HeadroomError
from engine.files import running_process
from engine.placement.needs import memory_estimate
from engine.placement.placement import offered_config
from engine.questions.rendering import Question
from engine.records import Record, decode, encode
from engine.texts import passages
from engine.training.folders import opened
from engine.training.locking import trainer
from engine.training.running import best
from engine.training.trajectory import decode as decode_trajectory
from engine.training.trajectory import encode as encode_trajectory
from engine.training.trajectory import of_log, series_of
from engine.views.training import trajectory_view
from tests import hub_stand_in, synthetic_runs
from tests.cli.conftest import refused
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import foreign_run, in_turns, small_run

DEEP = 100_000
HAS_PIPES = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
ODD = (None, True, -1, 32.0, 1e300, 2**63, 10**30, 10**5000, float("nan"), float("inf"), "", "x" * 5000, "../../out",
       "/etc/passwd", "\0", "\x1b[2J", "½", [], {}, [[]], [None], {"": None}, "@deep", 0, 65536, [1, "a"])  # fmt: skip


@contextmanager
def within(seconds):
    """Context that fails where what is in it takes longer; nothing else would end a read that blocks."""

    def stop(signum, frame):
        raise AssertionError(f"no end within {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def paths(value, at=()):
    """The path of every value inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield at
    for name, each in inner:
        yield from paths(each, (*at, name))


def changed(raw, drawn):
    """JSON with a value replaced, removed or doubled, or with bytes that are changed."""
    if drawn.random() < 0.25:
        at, n = drawn.randrange(len(raw) + 1), drawn.choice((0, 1, 3, len(raw)))
        return raw[:at] + drawn.choice((b"", b"\xff", b"[" * DEEP, b"null", b'"', b"NaN", b"1e999")) + raw[at + n :]
    value = json.loads(raw)
    for _ in range(drawn.choice((1, 1, 2))):
        path, odd = drawn.choice(list(paths(value))), copy.deepcopy(drawn.choice(ODD))
        if not path:
            value = odd
            break
        inside = value
        for name in path[:-1]:
            inside = inside[name]
        if drawn.random() < 0.2:
            del inside[path[-1]]
        else:
            inside[path[-1]] = odd
    with whole_numbers_of_any_length():
        return json.dumps(value).replace('"@deep"', "[" * DEEP + "]" * DEEP).encode()


@contextmanager
def whole_numbers_of_any_length():
    """Context in which Python writes them."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)


def in_file(file, read):
    """A reader of bytes that writes them into a file first."""

    def reader(raw):
        file.write_bytes(raw)
        return read()

    return reader


def framed(header):
    """A safetensors file with this header, and no values."""
    return len(header).to_bytes(8, "little") + header


def header_of(blob):
    return blob[8 : 8 + int.from_bytes(blob[:8], "little")]


def runs_begun_here(folder, name, **_):
    run = small_run(folder / "run", n_layers=1, tokens=2048)
    file = run.folder / name
    line = {"step": 0, "tokens": 0, "rate": 0.1, "loss": 5.0, "icl": 0.0, "first_copy": 5.0, "second_copy": 5.0,
            "prefix_matching": [[0.1, 0.2]], "previous_token": [[0.1, 0.2]], "seconds": 1.0}  # fmt: skip
    raw = json.dumps(line).encode() if name == "log.jsonl" else file.read_bytes()

    def read():
        found = opened(run.folder)
        series_of(str(run.folder))
        log = found.log()
        if log and hasattr(found, "recipe"):
            trajectory_view(of_log("run", found.recipe, log))
            best(log[-1])
            found.recipe.snapshot_steps()
        json.dumps([found.label, found.as_json(), trainer(run.folder)])

    return raw, in_file(file, read)


def runs_of_others(folder, tiny_opt, name, **_):
    run = foreign_run(folder / "run", tiny_opt, steps=(0, 8))
    file = run.folder / name
    raw = file.read_bytes().split(b"\n")[0] if name == "log.jsonl" else file.read_bytes()

    def read():
        found = opened(run.folder)
        json.dumps([found.label, found.as_json(), found.steps(), [found.tokens(step) for step in found.steps()]])

    return raw, in_file(file, read)


def trajectories(folder, **_):
    blob = encode_trajectory(synthetic_runs.trajectory("run", 2e6, n=5, n_texts=3))
    receipt = json.loads(json.loads(header_of(blob))["__metadata__"]["record"])

    def read(raw):
        header = json.loads(header_of(blob))
        header["__metadata__"]["record"] = raw.decode(errors="replace")
        found = decode_trajectory(framed(json.dumps(header).encode()) + blob[8 + len(header_of(blob)) :])
        trajectory_view(found, found)

    return json.dumps(receipt).encode(), read


def trajectory_headers(folder, **_):
    blob = encode_trajectory(synthetic_runs.trajectory("run", 2e6, n=5, n_texts=3))
    return header_of(blob), lambda raw: decode_trajectory(framed(raw) + blob[8 + len(header_of(blob)) :])


def records(folder, **_):
    blob = encode(Record({"a": np.zeros(3, np.float32)}, {"name": "a", "versions": {"torch": "2"}}))
    return header_of(blob), lambda raw: decode(framed(raw) + blob[8 + len(header_of(blob)) :])


def weight_headers(folder, tiny_opt, **_):
    blob = (tiny_opt / "model.safetensors").read_bytes()
    file, values = folder / "model.safetensors", blob[8 + len(header_of(blob)) :]
    return header_of(blob), lambda raw: in_file(file, lambda: contents(file))(framed(raw) + values)


def checkpoints(folder, tiny_opt, name, **_):
    of = tiny_opt if name != "tokenizer_config.json" else small_run(folder / "run").snapshot(32)  # OPT's is not read
    model = Path(shutil.copytree(of, folder / "model"))
    if name.endswith("index.json"):
        os.rename(model / "model.safetensors", model / "model-00001-of-00001.safetensors")
        index = {"metadata": {}, "weight_map": {"model.decoder.x": "model-00001-of-00001.safetensors"}}
        (model / name).write_text(json.dumps(index))
    return (model / name).read_bytes(), in_file(model / name, lambda: identify_folder("model", model, None))


def answers_of_the_hub(folder, tiny_opt, name, monkeypatch, **_):
    files = hub_stand_in.files_of(tiny_opt)
    if name == "index":
        name = "model.safetensors.index.json"
        weights = files.pop("model.safetensors")
        index = {"metadata": {}, "weight_map": {"x": "model-00001-of-00001.safetensors"}}
        files |= {name: json.dumps(index).encode(), "model-00001-of-00001.safetensors": weights}
    repository = hub_stand_in.Hub(files)
    listing = repository.listing(hub_stand_in.COMMIT)
    address = monkeypatch.enter(hub_stand_in.served(repository))
    hub_stand_in.use(monkeypatch, address, folder / "hub")

    def read(raw):
        if name == "listing":
            repository.told = raw
        else:
            repository.files[name] = raw
        memory_estimate(offered_config(hub.look_up("someone/tiny")), "fp32")

    return json.dumps(listing).encode() if name == "listing" else files[name], read


def remembered_texts(folder, store, **_):
    passages.remember("a", "some text", store)

    def read(raw):
        store.put(passages.INDEX, raw)
        [passages.recall(name, store) for name in passages.names(store)]

    return store.get(passages.INDEX), read


def marks(folder, **_):
    file, raw = folder / "mark", json.dumps({"pid": os.getpid(), "began": 1.0}).encode()
    return raw, in_file(file, lambda: running_process(file))


def logs_of_the_harness(folder, **_):
    question = Question(0, ("a b",) * 2, (" a", " b"), (0,), (2, 2), "")
    answers = Answers((question,), np.array([[-1.0, -2.5]]), np.array([[True, False]]), np.zeros(1, int), False)
    file = folder / "samples_x.jsonl"
    pairs = {f"gen_args_{at}": {"arg_0": "a b", "arg_1": f" {choice}"} for at, choice in enumerate("ab")}
    row = {"doc_id": 0, "arguments": pairs, "filtered_resps": [["-1.0", "True"], ["-2.5", "False"]]}
    return json.dumps(row).encode(), in_file(file, lambda: harness_answers(str(file), "x", answers))


FORMATS = {
    "recipe.json": partial(runs_begun_here, name="recipe.json"),
    "log.jsonl": partial(runs_begun_here, name="log.jsonl"),
    "another trainer's recipe.json": partial(runs_of_others, name="recipe.json"),
    "another trainer's log.jsonl": partial(runs_of_others, name="log.jsonl"),
    "a trajectory's receipt": trajectories,
    "a trajectory's header": trajectory_headers,
    "a record's header": records,
    "a weight file's header": weight_headers,
    "config.json": partial(checkpoints, name="config.json"),
    "tokenizer_config.json": partial(checkpoints, name="tokenizer_config.json"),
    "an index of weights": partial(checkpoints, name="model.safetensors.index.json"),
    "the hub's list of files": partial(answers_of_the_hub, name="listing"),
    "the hub's config.json": partial(answers_of_the_hub, name="config.json"),
    "the hub's index": partial(answers_of_the_hub, name="index"),
    "remembered texts": remembered_texts,
    "a process's mark": marks,
    "a log of lm-eval": logs_of_the_harness,
}


class Patches(pytest.MonkeyPatch):
    """Patches, and contexts that are left with them."""

    def __init__(self):
        super().__init__()
        self.stack = ExitStack()

    def enter(self, context):
        return self.stack.enter_context(context)


@pytest.mark.thorough
@pytest.mark.slow("feeds 50 files to each of 18 readers")
@pytest.mark.parametrize("name", FORMATS)
def test_a_changed_file_is_read_or_refused_in_one_line(name, tmp_path, tiny_opt, store):
    patches = Patches()
    folder = tmp_path / "inside"
    folder.mkdir()
    try:
        raw, read = FORMATS[name](folder=folder, tiny_opt=tiny_opt, store=store, monkeypatch=patches)
        read(raw)  # as it is, it can be read
        beside = set(tmp_path.iterdir())

        @settings(max_examples=500 if IS_THOROUGH else 50, derandomize=not IS_THOROUGH,
                  suppress_health_check=list(HealthCheck), database=None)  # fmt: skip
        @given(st.integers(0, 2**32))
        def feed(seed):
            try:
                with within(20):
                    read(changed(raw, random.Random(seed)))
            except (HeadroomError, InvalidFile) as error:
                assert str(error)
            assert set(tmp_path.iterdir()) == beside

        feed()
    finally:
        patches.undo()
        patches.stack.close()


@pytest.mark.parametrize("raw, says", [
    (b'{"a": 32.0}', "f.json: a: Expected `int`, got `float`"), (b'{"a": null}', "f.json: a: Expected `int`"),
    (b'{"a": NaN}', "f.json: JSON is malformed"), (b'{"a": 9223372036854775808}', "more than 64 bits"),
    (b'{"a": ' + b"9" * 5000 + b"}", "out of range"), (b"[" * DEEP, "nested too deeply|Expected `object`"),
    (b'{"a": 1, "b": ' + b"[" * 100 + b"]" * 100 + b"}", "nested too deeply"), (b'{"a": 1, "b": "\xff"}', "utf-8"),
    (b'{"a": 1, "b": "\\ud800"}', "f.json: "), (b"{}", "Object missing required field `a`"), (b"", "f.json: "),
])  # fmt: skip
def test_json_is_typed_and_bounded(raw, says):
    with pytest.raises(InvalidFile, match=says) as error:
        decode_json(raw, Numbers, "f.json")
    assert "\n" not in str(error.value)
    assert decode_json(b'\xef\xbb\xbf{"a": 1}', Numbers, "f.json") == Numbers(1)


@HAS_PIPES
def test_a_file_is_read_only_if_it_is_regular_and_not_too_large(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sparse").write_bytes(b"{}")
    os.truncate(tmp_path / "sparse", 1_900_000_000)
    for file, says in (("/dev/zero", "not a regular file"), (tmp_path / "pipe", "not a regular file"),
                       (tmp_path, "not a regular file"), (tmp_path / "sparse", "more than the 200 MB")):  # fmt: skip
        with within(5), pytest.raises(InvalidFile, match=says):
            read_json(file, dict)


@HAS_PIPES
@pytest.mark.parametrize("name, kind", in_turns(
    ["held_out.npy", "log.jsonl", "recipe.json", "lock", "step32/config.json", "step32/tokenizer_config.json"],
    ["pipe", "device"]))  # fmt: skip
def test_a_pipe_or_device_in_a_run_blocks_neither_trajectory_nor_train(name, kind, cli, tmp_path):
    run = small_run(tmp_path / "run")
    file = run.folder / name
    file.unlink(missing_ok=True)
    os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")
    with within(60):
        measured = cli("trajectory", f"{run.folder}@step32", "--quantities", "loss", "--texts", 2)
        trained = cli("train", "--out", run.folder)
    if name in ("log.jsonl", "lock", "step32/tokenizer_config.json"):  # which a run that is done does not need
        assert measured[0] == 0, measured
    else:
        refused(measured, 1, "make it again" if name == "held_out.npy" else str(run.folder))
    assert trained[0] in (1, 2) and len(trained[2]) == 1 and "unexpected" not in trained[2][0], trained


@dataclass(frozen=True)
class Numbers:
    """What is read in the tests above."""

    a: int
    b: Any = None
