"""kill -9 at any moment costs a sweep no finished chunk, and what it finds in the end is the same, bit for bit.

The sweep runs in a process of its own that is killed and started again. What a chunk costs is known from a run that
nobody disturbed, so the passes that a resumed run makes can be said beforehand: those of the chunks not yet stored.
"""

import json
import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest

from cache import open_store
from engine.records import decode
from tests.conftest import HANG_S, IS_THOROUGH, REPOSITORY
from tests.engine.fixtures import write_questions

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

# Importing torch takes seconds, so one process does it, makes the model, and then forks a new one for each run.
# A run writes `P` for each forward pass into its log, and the key of each chunk once it is stored.
RUNNER = """
import json, os, signal, sys, threading
import torch, datasets, lm_eval.tasks
from pathlib import Path
from transformers import AutoTokenizer, OPTForCausalLM
from cache import open_store
from cache.store import Store
from engine.models.loading import LoadSpec
from engine.models.session import Session
from engine.questions.rendering import TaskSpec
from engine.studies.surveys import SurveySettings
from engine.studies.sweeps import points, sweep
from tests.conftest import make_tiny_opt

def run(folder, files, where, log, result, lines, delay_s):
    log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    written = []
    def note(line):
        os.write(log, line + b"\\n")
        written.append(line)
        if len(written) == lines:  # by a timer of its own: nobody who watches could be late
            threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
    def passed(module, args, output):
        if type(module).__name__ == "OPTModel":
            note(b"P")
    torch.nn.modules.module.register_module_forward_hook(passed)
    put = Store.put
    def noted(self, key, blob):
        saved = put(self, key, blob)
        note(key.encode())
        return saved
    Store.put = noted
    setting = SurveySettings(LoadSpec(folder, "fp32"), bos=True)
    tasks = [TaskSpec(file) for file in files]
    wanted = [*points(tasks, [0, 300, 600, 1000], [0, 500]), *points(tasks[:1], [300, 600, 800], [0], "rescored"),
              *points(tasks, [600], [0], "aggregate"), *points(tasks, [400, 600], [0], "random", seed=5)]
    store = open_store(where)
    session = Session(store)
    for step in sweep(session.target(setting.spec, setting.bos), setting, wanted, files).run(session):
        pass
    assert len(step.value.rows) == len(wanted) and not step.value.failed
    store.close()
    with open(result, "w") as file:
        json.dump([row.cells() for row in step.value.rows], file)

make_tiny_opt(Path(sys.argv[1]), n_heads=8)
print("ready", flush=True)
for line in sys.stdin:
    process = os.fork()
    if process == 0:
        signal.alarm(int(sys.argv[2]))  # ends a run that stands still
        try:
            run(*json.loads(line))
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


class Runner:
    """Starts sweeps over `files`, each in a new process, and reads what they logged."""

    def __init__(self, process, folder, files, place):
        self.process, self.folder, self.files, self.place = process, folder, files, place
        self.n_runs = 0

    def run(self, where, lines=None, delay_s=0.0):
        """(exit status, log) of a run with the store `where`, killed `delay_s` after so many `lines` of its log."""
        self.n_runs += 1
        log, self.result = self.place / f"log{self.n_runs}", self.place / f"rows{self.n_runs}.json"
        log.touch()
        call = [str(self.folder), [str(file) for file in self.files], str(where), str(log), str(self.result)]
        call += [lines, delay_s]
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        status = int(self.process.stdout.readline())
        return status, log.read_text().split()


def chunks(log):
    """Forward passes of each batch of chunks (a tuple of keys) that the log says is stored, and those after the last.

    The FFN oracle measures a chunk under all its masks in one go and then stores them, so without passes between.
    """
    batches, passes = [], 0
    for line in log:
        if line == "P":
            passes += 1
        elif "/answers/" in line or "/importance/" in line:
            assert not any(line in keys for keys, _ in batches), "a run stored the same chunk twice"
            if passes or not batches:
                batches.append(([], passes))
            batches[-1][0].append(line)
            passes = 0
    return {tuple(keys): cost for keys, cost in batches}, passes


def keys_of(batches):
    return {key for keys in batches for key in keys}


def stored(where):
    """What the store holds of chunks, by key, every entry checked."""
    store = open_store(where)
    assert not store.verify().bad_keys and store.notice is None
    found = {key: store.get(key) for key in store.keys() if "/answers/" in key or "/importance/" in key}
    store.close()
    return found


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    place = tmp_path_factory.mktemp("killed")
    (folder := place / "model").mkdir()
    errors = (place / "errors").open("w")
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(folder), str(HANG_S)],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    files = [write_questions(place / f"{name}.jsonl", 32, seed) for seed, name in enumerate("ab")]
    assert process.stdout.readline() == "ready\n", (place / "errors").read_text()
    yield Runner(process, folder, files, place)
    process.stdin.close()
    process.wait(HANG_S)
    process.stdout.close()
    errors.close()


@pytest.fixture(scope="module")
def undisturbed(runner):
    """(log, rows as text, chunks) of a run that nobody killed."""
    status, log = runner.run(runner.place / "undisturbed")
    assert status == 0, (runner.place / "errors").read_text()
    costs, rest = chunks(log)
    assert rest == 0 and len(keys_of(costs)) > 40 and all(costs.values()), "every pass belongs to a chunk"
    return log, runner.result.read_text(), stored(runner.place / "undisturbed")


def first_chunk(log):
    """Lines of a log up to the first chunk in it."""
    return 1 + next(at for at, line in enumerate(log) if "/answers/" in line or "/importance/" in line)


def passes_of(costs, kept):
    """Passes of the batches of which anything is kept."""
    return sum(cost for keys, cost in costs.items() if kept.keys() & set(keys))


def in_part(costs, kept):
    """Passes that are made again at most where the kill fell between two puts of one batch."""
    return sum(cost for keys, cost in costs.items() if kept.keys() & set(keys) and not kept.keys() >= set(keys))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3 if IS_THOROUGH else 1))
def test_killed_again_and_again_no_finished_chunk_is_computed_twice(seed, runner, undisturbed, tmp_path):
    whole_log, whole_rows, whole_chunks = undisturbed
    costs, _ = chunks(whole_log)
    dearest, generator, n_killed, kept = max(costs.values()), random.Random(seed), 0, {}
    for _ in range(3):
        # somewhere in what is left to do, at any point between two lines of the log
        left = sum(cost + len(keys) for keys, cost in costs.items() if not kept.keys() >= set(keys))
        first = first_chunk(whole_log) if not kept else dearest + 1  # so that one chunk at least is finished
        lines = generator.randint(first, max(first, left // 3))
        status, log = runner.run(tmp_path, lines, generator.uniform(0, 0.006))
        if status == 0:  # over before it could be killed: a slow moment of the computer
            break
        assert status == -signal.SIGKILL, (runner.place / "errors").read_text()
        n_killed += 1
        before, kept = kept, stored(tmp_path)
        assert before.items() <= kept.items(), "a finished chunk is gone or was written again"
        new = kept.keys() - before.keys()
        said = keys_of(chunks(log)[0])
        assert new and said <= new and len(new) - len(said) <= 1, "stored is stored, once a put has returned"
        spent, again = passes_of(costs, kept) - passes_of(costs, before), in_part(costs, before)
        assert spent <= log.count("P") <= spent + again + dearest, "only the chunk in hand is lost"
    assert n_killed >= 2
    kept = stored(tmp_path)
    status, log = runner.run(tmp_path)
    assert status == 0, (runner.place / "errors").read_text()
    left = sum(costs.values()) - passes_of(costs, kept)
    assert left <= log.count("P") <= left + in_part(costs, kept), "passes were made again"
    assert keys_of(chunks(log)[0]) == keys_of(costs) - kept.keys()
    assert runner.result.read_text() == whole_rows, "the rows differ from those of an undisturbed run"
    found = stored(tmp_path)
    assert found.keys() == whole_chunks.keys() and kept.items() <= found.items()
    for key, blob in found.items():  # receipts hold times, so the arrays are compared
        ours, theirs = decode(blob).arrays, decode(whole_chunks[key]).arrays
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name].view(np.uint8), theirs[name].view(np.uint8)) for name in ours)


def test_started_again_when_it_was_finished_it_makes_no_pass(runner, undisturbed):
    status, log = runner.run(runner.place / "undisturbed")
    assert status == 0 and log == []
    assert runner.result.read_text() == undisturbed[1]
