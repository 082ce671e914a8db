"""What tests share: no network, few threads, a store that is thrown away, and a tiny random OPT folder."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

# before anything imports torch or a hub client
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the suite runs one worker a core
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"
for name in ("HEADROOM_DEVICE", "HEADROOM_PLACE"):
    os.environ.pop(name, None)
os.environ.setdefault("HEADROOM_SHIPPED", "0")  # tests measure, unless they are of the shipped records
os.environ.setdefault("HEADROOM_IDLE_SECONDS", "1000000")  # what is measured ahead must not depend on the machine

import hypothesis  # noqa: E402
import pytest  # noqa: E402

hypothesis.settings.register_profile("any machine", deadline=None)  # other work on it is not the code's fault
hypothesis.settings.load_profile("any machine")
REPOSITORY = Path(__file__).resolve().parent.parent
HANG_S = 600  # what a test waits at most: not for how fast a machine is, only for what would never end
LOOPBACK = ("127.0.0.1", "::1", "localhost")
TEXT = """The river was low that summer, and the children could walk across it on the flat stones. Every morning the
oldest of them counted the boats. There were seven boats, then six, then seven again. What is the answer? The answer is
yes, or the answer is no. A question has a context and some choices; one of the choices is the best. Cold water, warm
bread, a long road: these were the things that she wrote about in her letters, and these the things he remembered."""


N_SHOWN, BUDGET_S = 20, 1.0  # of the slowest tests, and what a test may take without saying why
gc.set_threshold(50_000)  # looking for unused objects took a tenth of the time of the page tests
IS_THOROUGH = os.environ.get("HEADROOM_THOROUGH") == "1"  # tests marked `thorough` run in their full form


def some_of(cases: Iterable, n: int = 1) -> list:
    """The cases; unless thorough, the first `n`."""
    return [*cases] if IS_THOROUGH else [*cases][:n]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Each report carries the reason that a test gives for being slow."""
    report = yield
    if (mark := item.get_closest_marker("slow")) is not None:
        report.user_properties.append(("slow", *mark.args))
    return report


def pytest_collection_finish():
    """The modules and tests in memory stay: without them, a full garbage collection is several times faster."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Prints the slowest tests."""
    reports = [each for found in terminalreporter.stats.values() for each in found if hasattr(each, "duration")]
    terminalreporter.section("slowest tests, set-up included")
    for line in slowest_lines(reports):
        terminalreporter.line(line)


def slowest_lines(reports: Iterable[pytest.TestReport]) -> list[str]:
    """A line for each of the slowest tests: seconds (set-up and teardown included), name, and the reason it gives."""
    seconds: defaultdict[str, float] = defaultdict(float)
    reasons: dict[str, str] = {}
    for report in reports:
        seconds[report.nodeid] += report.duration
        reasons.update((report.nodeid, str(why)) for name, why in report.user_properties if name == "slow")
    lines = []
    for name in sorted(seconds, key=lambda name: -seconds[name])[:N_SHOWN]:
        over = seconds[name] > BUDGET_S
        why = reasons.get(name, "no reason given: @pytest.mark.slow") if over else ""
        lines.append(f"{seconds[name]:6.2f} s  {name}{f'  ({why})' if why else ''}")
    return lines


@pytest.fixture(autouse=True, scope="session")
def no_network():
    """Fails any connection that would leave this computer."""
    patch = pytest.MonkeyPatch()
    for name in ("connect", "connect_ex"):
        real = getattr(socket.socket, name)

        def guarded(self, address, *rest, real=real):
            if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in LOOPBACK:
                raise AssertionError(f"a test tried to connect to {address}")
            return real(self, address, *rest)

        patch.setattr(socket.socket, name, guarded)
    yield
    patch.undo()


@pytest.fixture(autouse=True, scope="session")
def embedded_tasks_are_rendered_once():
    """Each store begins empty, so each test would have the harness render the same embedded questions again."""
    from engine.questions import rendering

    rendered, render = {}, rendering._render

    def render_once(task, info, given):
        if given is None or not task.name.startswith("demo_"):
            return render(task, info, given)
        key = task, given.digest
        if key not in rendered:
            rendered[key] = render(task, info, given)
        return rendered[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendering, "_render", render_once)
        yield


@pytest.fixture(scope="session")
def warm():
    """Starts processes that have the heavy libraries in memory; see tests/warm.py."""
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    from tests.warm import WarmInterpreter

    interpreter = WarmInterpreter()
    yield interpreter
    interpreter.close()


@pytest.fixture
def store(tmp_path):
    """An empty result store of this test's own."""
    from cache import open_store

    store = open_store(tmp_path / "results")
    yield store
    store.close()


@pytest.fixture
def session(store):
    """A session with that store and no model in memory."""
    from engine.models.session import Session

    return Session(store)


@pytest.fixture(scope="session")
def tiny_opt(tmp_path_factory):
    """Folder of a random OPT: 2 layers x 4 heads, d_model 32, with a byte-level BPE tokenizer of 512 entries."""
    return make_tiny_opt(tmp_path_factory.mktemp("tiny_opt"))


@pytest.fixture(scope="session")
def wide_opt(tmp_path_factory):
    """Folder of such a model with a window of 512 tokens."""
    return make_tiny_opt(tmp_path_factory.mktemp("wide_opt"), n_ctx=512, seed=3)


def make_tiny_opt(
    folder: Path, n_layers: int = 2, n_heads: int = 4, d_model: int = 32, n_ctx: int = 256, seed: int = 0
) -> Path:
    """The folder, filled as `save_pretrained` fills one."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import OPTConfig, OPTForCausalLM

    torch.set_num_threads(1)
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        [TEXT], vocab_size=512, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False
    )
    # like OPT's own tokenizer, this one puts </s> in front by itself
    bpe.post_processor = TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 2)])
    bpe.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 256, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    torch.manual_seed(seed)
    config = OPTConfig(
        vocab_size=512,
        hidden_size=d_model,
        word_embed_proj_dim=d_model,
        ffn_dim=2 * d_model,
        num_hidden_layers=n_layers,
        num_attention_heads=n_heads,
        max_position_embeddings=n_ctx,
        init_std=0.3,  # the default is so small that every choice would score alike
        bos_token_id=2,
        eos_token_id=2,
        pad_token_id=1,
    )
    OPTForCausalLM(config).eval().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def warm_app():
    """As `warm`, with the app's libraries, too."""
    from tests.warm import PRELOAD, WarmInterpreter

    interpreter = WarmInterpreter((*PRELOAD, "streamlit.starlette", "altair", "pyarrow"))
    yield interpreter
    interpreter.close()


@pytest.fixture(scope="session")
def app_server(request, tmp_path_factory, no_network):
    """A function that starts the app as `make run` does, with an empty store, and gives (address, process). With
    `warm`, the process is forked from one that has the libraries in memory: for tests that do not test start-up. With a
    `path`, the app is served below it."""
    running = []

    def start(cache: Path | None = None, warm: bool = False, path: str = "", **environment: str):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = [
            f"--server.port={port}",
            "--server.headless=true",
            *([f"--server.baseUrlPath={path}"] if path else []),
        ]
        env = {
            **os.environ,
            "HEADROOM_CACHE": str(cache or tmp_path_factory.mktemp("cache") / "results"),
            **environment,
        }
        if warm:
            process = request.getfixturevalue("warm_app").start(["-m", "headroom", *settings], env)
            process.stdin.close()
        else:
            process = subprocess.Popen(
                [sys.executable, "headroom.py", *settings],
                cwd=REPOSITORY,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        assert process.stdout is not None
        for line in process.stdout:
            if f":{port}{path and f'/{path}'}" in line:
                break
        else:
            raise AssertionError(f"the app did not start; exit code {process.wait(HANG_S)}")
        # a full pipe would stop the server
        pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
        drains = [threading.Thread(target=pipe.read, daemon=True) for pipe in pipes]
        for drain in drains:
            drain.start()
        running.append((process, pipes, drains))
        return f"http://127.0.0.1:{port}{path and f'/{path}'}", process

    yield start
    for process, pipes, drains in running:
        process.send_signal(signal.SIGTERM)
        process.wait(HANG_S)
        for pipe, drain in zip(pipes, drains, strict=True):
            drain.join(HANG_S)
            pipe.close()


@pytest.fixture(scope="session")
def folder_of(tiny_opt, tmp_path_factory):
    """A function that gives the folder of a random tiny model of a family, made once: tests write into copies of it."""
    import functools

    from tests.engine.fixtures import family_folder

    return functools.cache(lambda family: family_folder(family, tiny_opt, tmp_path_factory.mktemp(family)))


@pytest.fixture(scope="session")
def model_of(folder_of):
    """A function that gives such a model, loaded."""
    import functools

    from tests.engine.fixtures import loaded

    return functools.cache(lambda family, precision="fp32": loaded(folder_of(family), precision))
