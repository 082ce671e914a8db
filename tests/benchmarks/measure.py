"""What all comparisons share: `Comparison`, timing in turn, processes of their own, and models of OPT's size."""

import argparse
import json
import logging
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from engine.kernels.kernel_choice import processor

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = REPOSITORY.parent / "shared"  # OPT's tokenizer and real tasks, where a checkout has them beside it
AS_GIVEN = dict(os.environ)  # before tests.conftest is imported, which sets threads that no user has set
PACKAGES = ("torch", "transformers", "lm_eval", "bitsandbytes", "streamlit")


@dataclass(frozen=True)
class Comparison:
    """One line of the chart: what ours and the usual way cost, pair by pair.

    `ours` and `usual` are costs in `unit` (less is better), one a round or one a task, as `over` says; a ratio is
    usual / ours, so that 3 means three times as fast, or a third of the memory. `bar` is the ratio that was asked for.
    `difference` says how far the two sides' results lie apart.
    """

    family: str  # what is compared with what: the heading of its group in the chart
    name: str  # of this line: model, task, precision
    unit: str
    ours: tuple[float, ...]
    usual: tuple[float, ...]
    over: str
    bar: float | None = None
    difference: str = ""

    @property
    def ratios(self) -> tuple[float, float, float]:
        """Minimum, geometric mean, maximum."""
        pairs = [usual / ours for ours, usual in zip(self.ours, self.usual, strict=True)]
        return min(pairs), statistics.geometric_mean(pairs), max(pairs)

    def line(self) -> str:
        """The comparison in one line."""
        low, middle, high = self.ratios
        ours, usual = (statistics.geometric_mean(costs) for costs in (self.ours, self.usual))
        asked = "" if self.bar is None else f", asked {self.bar:.2g}"
        same = f"; {self.difference}" if self.difference else ""
        return (f"{self.name}: {low:.2f} / {middle:.2f} / {high:.2f} times over {self.over}{asked} "
                f"({ours:.4g} against {usual:.4g} {self.unit}){same}")  # fmt: skip

    def record(self) -> dict[str, Any]:
        """For the JSON file."""
        low, middle, high = self.ratios
        return asdict(self) | {"ratio": {"min": low, "mean": middle, "max": high}}


@dataclass(frozen=True)
class Timed:
    """What one of several ways took, round by round, and what it gave the last time."""

    seconds: tuple[float, ...]
    found: Any

    def per(self, amount: float, scale: float = 1.0) -> tuple[float, ...]:
        """What it costs of each unit of an amount: seconds, or a `scale`-th of one."""
        return tuple(scale * seconds / amount for seconds in self.seconds)


def in_turn(
    ways: Sequence[Callable[[], Any]],
    n_rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    warm_up: bool = False,
) -> list[Timed]:
    """What each way takes in so many rounds, one after the other in each; with `warm_up` behind one that is not timed.
    `time.process_time` is the clock that other work on the computer lengthens least."""
    taken: list[list[float]] = [[] for _ in ways]
    found: list[Any] = [None] * len(ways)
    for number in range(n_rounds + warm_up):
        for at, way in enumerate(ways):
            started = clock()
            found[at] = way()
            if number >= warm_up:
                taken[at].append(clock() - started)
    return [Timed(tuple(seconds), each) for seconds, each in zip(taken, found, strict=True)]


def finished(
    steps: Generator[Any, None, Any], context: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Any:  # fmt: skip
    """What a generator returns in the end; each of its steps runs in a `context` of its own."""
    while True:
        try:
            with context():
                next(steps)
        except StopIteration as end:
            return end.value


def alone(run: Callable[..., Any], *arguments: Any, **environment: str) -> Any:
    """What a function of a benchmark gives in a process of its own, with this environment besides; its arguments and
    what it gives go over as JSON."""
    wanted = json.dumps([sys.modules[run.__module__].__spec__.name, run.__name__, arguments])
    command = [sys.executable, "-m", "tests.benchmarks.measure", wanted]
    env = os.environ | environment
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True, env=env)
    return json.loads(done.stdout.strip().splitlines()[-1])


def options(doc: str | None, **defaults: Any) -> argparse.Namespace:
    """What the command line says of these, each by its name and of the type of its default; None is a text."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", default=value, type=str if value is None else type(value))
    return parser.parse_args()


def opt_125m(folder: str | Path, **sizes: Any) -> str:
    """Fills the folder with a random model of OPT-125m's shape, or with other `sizes` of OPTConfig; gives its path.

    OPT's own tokenizer and vocabulary where the shared folder has them, else those of the embedded model.
    """
    import torch
    from transformers import OPTConfig, OPTForCausalLM

    from engine.demo import model_folder

    torch.manual_seed(0)
    real = SHARED / "opt-tokenizer"
    names = ("vocab.json", "merges.txt", "tokenizer_config.json") if real.is_dir() else (
        "tokenizer.json", "tokenizer_config.json")  # fmt: skip
    source, n_vocab = (real, 50272) if real.is_dir() else (model_folder(), 4096)
    config = OPTConfig(vocab_size=n_vocab, bos_token_id=2, eos_token_id=2, **sizes)  # the other defaults are OPT-125m's
    OPTForCausalLM(config).to(config.dtype or torch.float32).save_pretrained(folder)
    for name in names:
        shutil.copyfile(source / name, Path(folder) / name)
    return str(folder)


def as_transformers_loads(folder: str | Path, precision: str) -> Any:
    """The model of a folder in eval mode, as its users load it on a CPU: nothing of ours is in it."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    options: dict[str, Any] = {"dtype": torch.float32 if precision == "fp32" else torch.bfloat16}
    if precision == "int8":
        logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)  # a line a layer and call
        options["quantization_config"] = transformers.BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=6.0)
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, device_map={"": "cpu"}, **options
    ).eval()


def encoded(model: Any, questions: Sequence[Any]) -> Any:
    """Questions as a loaded model reads them."""
    from engine.questions.encoding import encode_questions

    return encode_questions(questions, model.tokenizer, model.identity.default_bos, model.identity.shape.n_ctx)


def task_data() -> str | None:
    """The folder of real tasks' rows, where there is one."""
    folder = os.environ.get("HEADROOM_TASK_DATA") or SHARED / "task_data"
    return str(folder) if Path(folder).is_dir() else None


def processor_flags() -> str:
    """What the processor says it can do, "" where the system does not show it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def peak_bytes() -> int:
    """The most memory that this process has held so far."""
    if sys.platform == "linux":  # ru_maxrss begins at what the parent had
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system and the versions of what is measured with."""
    import psutil

    return {
        "cpu": processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": platform.system(),
        "python": platform.python_version(),
    } | {name: version(name) for name in PACKAGES}


if __name__ == "__main__":  # a process of `alone`
    module, name, given = json.loads(sys.argv[1])
    print(f"\n{json.dumps(getattr(import_module(module), name)(*given))}")
