"""A paper study that was stopped, killed and continued by other people on other machines gives the same report, byte
for byte but for the one line that says when and where.

Machines are processes: each with a store, a working folder, a model's folder, a home, a clock's zone, a language and a
seed of hashes of its own. Where Intel's library can be told to add up alike on all of its processors, one has another
number of threads, and the one that puts the report together is older.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cache import Store
from engine.__main__ import main
from engine.demo import model_folder
from engine.kernels.kernel_choice import abilities, processor
from pages.ui.paper_report import TIMES
from tests.cli.test_a_paper_study_stands_alone import but_for_times
from tests.conftest import HANG_S, IS_THOROUGH, REPOSITORY
from tests.engine.fixtures import write_questions
from tests.same_results import differences
from tests.warm import WarmInterpreter, WarmProcess

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill a process that way"),
    pytest.mark.thorough,
    pytest.mark.slow("two studies in three processes with other clocks, languages, hash seeds and processors"),
]
STUDY = ["--precision", "fp32", "--tasks", "demo_copy,own.jsonl", "--shots", "0", "--limit", "8"]
STUDY += ["--order-questions", "8"]
ALIKE, TWO, OLDER = {}, {}, {}
if "avx2" in abilities() and "Intel" in processor():
    ALIKE = {"MKL_CBWR": "AVX2,STRICT", "ATEN_CPU_CAPABILITY": "avx2"}
    TWO = {"OMP_NUM_THREADS": "2"}
    OLDER = {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}
    OLDER["NPY_DISABLE_CPU_FEATURES"] = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
ELSEWHERE = {
    "a": {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"},
    "b": {"TZ": "Asia/Kolkata", "LC_ALL": "C", "PYTHONHASHSEED": "1", "USER": "somebody", **TWO},
    "c": {"TZ": "Pacific/Auckland", "LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "3", **OLDER},
}


class Machine:
    """A place in which commands run, with a store, a model and questions of its own."""

    def __init__(self, folder: Path, model: Path, more: dict[str, str], warm: WarmInterpreter | None) -> None:
        self.folder, self.store, self.out, self.warm = folder, folder / "store", folder / "work" / "study", warm
        for made in ("home", "work"):
            (folder / made).mkdir(parents=True)
        write_questions(folder / "work" / "own.jsonl", 24)
        shutil.copytree(model, folder / "somewhere" / "model")
        self.of_model = ("--model", str(folder / "somewhere" / "model"))
        self.study = ["sweep", "--preset", "paper", *STUDY, *self.of_model]
        self.env = {**os.environ, "HOME": str(folder / "home"), "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
        self.env |= {"HEADROOM_CACHE": str(self.store), **ALIKE, **more}

    def start(self, *words: str) -> subprocess.Popen[str] | WarmProcess:
        command = ["-m", "engine", *words]
        if self.warm is not None:
            return self.warm.start(command, self.env, self.folder / "work")
        return subprocess.Popen([sys.executable, *command], cwd=self.folder / "work", env=self.env,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip

    def run(self, *words: str) -> None:
        process = self.start(*words)
        _, errors = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, errors

    def killed(self, n_results: int, *words: str) -> None:
        """Runs it until so many results are in the store, and kills it then."""
        process, end_s = self.start(*words), time.monotonic() + HANG_S
        with self.results() as counted:
            while counted() < n_results:
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < end_s
                time.sleep(0.02)
        process.kill()
        _, errors = process.communicate(timeout=HANG_S)
        assert process.returncode == -signal.SIGKILL, errors

    @contextlib.contextmanager
    def results(self):
        """What counts the results in the store."""
        store = Store(self.store)
        yield lambda: sum("/answers/" in key or "/importance/" in key for key in store.keys())
        store.close()

    def n_results(self) -> int:
        with self.results() as counted:
            return counted()

    def report(self) -> dict[str, bytes]:
        """The files of the study's folder."""
        return {str(file.relative_to(self.out)): file.read_bytes() for file in self.out.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def machines(tmp_path_factory, tiny_opt, warm):
    """Machines with copies of the embedded model. In the short form the model is a small random one, and all but the
    last machine start with the libraries in memory, if none of their variables is for libraries."""
    model = model_folder() if IS_THOROUGH else tiny_opt
    is_cold = {name: IS_THOROUGH or bool(ALIKE) or name == "c" for name in ELSEWHERE}
    return {
        name: Machine(tmp_path_factory.mktemp(name) / f"clone of {name}", model, more, None if is_cold[name] else warm)
        for name, more in ELSEWHERE.items()
    }


@pytest.fixture(scope="module")
def undisturbed(machines):
    """The machine on which the whole study was measured in one go."""
    machines["a"].run(*machines["a"].study, "--out", "study")
    return machines["a"]


@pytest.fixture(scope="module")
def continued(machines, undisturbed):
    """The machine that finished what was begun on another and killed there, with its results; and how many it got."""
    b, c = machines["b"], machines["c"]
    n = undisturbed.n_results()
    b.killed(2 * n // 3, *b.study, "--out", "study")
    assert main(["cache", "pull", str(b.store), "--cache", str(c.store)]) == 0
    given = c.n_results()
    c.run(*c.study, "--out", "study")
    return c, given


def test_the_report_is_the_same_byte_for_byte_but_for_one_line(undisturbed, continued):
    (other, given), mine = continued, undisturbed.report()
    assert undisturbed.n_results() // 2 < given < undisturbed.n_results() == other.n_results(), "each did its part"
    found = other.report()
    assert mine.keys() == found.keys() and {".csv", ".parquet", ".svg", ".png", ".html"} == {
        Path(name).suffix for name in mine
    }
    assert [name for name in mine if mine[name] != found[name]] == ["report.html"]
    reports = [each["report.html"] for each in (mine, found)]
    assert but_for_times(reports[0]) == but_for_times(reports[1])
    assert [report.count(TIMES.encode()) for report in reports] == [1, 1]


def test_nothing_else_tells_of_a_machine(undisturbed):
    for name, content in undisturbed.report().items():
        told = but_for_times(content)
        for word in (str(undisturbed.folder), str(REPOSITORY), "clone of"):
            assert word.encode() not in told, name


def test_all_results_are_equal(undisturbed, continued):
    assert differences(undisturbed.store, continued[0].store) == {}
