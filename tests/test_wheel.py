"""A wheel is built, installed into an empty environment and run from a folder of a user: one command, one package,
nothing left behind. The folder has modules that are called like the parts of Headroom, and is on PYTHONPATH.

Without the network: the environment has nothing but the wheel, and finds its dependencies where this Python does.
"""

import ast
import importlib.util
import json
import os
import re
import site
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from packaging.requirements import Requirement

from cache.store import default_directory
from engine.__main__ import main
from engine.export.forms import small_model
from tests.conftest import HANG_S, REPOSITORY
from tests.same_results import differences
from tests.test_server_is_local_only import handshake

PARTS = ("cache", "engine", "pages")
ASKED = (
    "evaluate --task demo_copy --shots 0 --limit 12 --sample first --mask L3H5,F7,L1H0-3 --precision fp32 --bos --json"
)
SCRIPT = """
import json, sys
from pathlib import Path
before, modules = [*sys.path], {*sys.modules}
import headroom
came = sorted({*sys.modules} - modules)
import cache, engine, pages
from headroom.cache import open_store
from headroom.engine.accuracy.evaluation import accuracy, evaluation
from headroom.engine.distributed.driver import Worker
from headroom.engine.errors import HeadroomError
from headroom.engine.export.exporting import Export, export
from headroom.engine.models.loading import LoadSpec
from headroom.engine.models.masks import parse_mask
from headroom.engine.models.session import Session
from headroom.engine.progress import final
from headroom.engine.questions.rendering import TaskSpec, render_questions, select
from headroom.engine.training.live import trained
from headroom.engine.training.recipe import Recipe

store, folder = sys.argv[1:]
session = Session(open_store(store))
target = session.target(LoadSpec("demo", "fp32"), bos=True)
questions = select(render_questions(TaskSpec("demo_copy", 0), None, session.store), 12, "first")
mask = parse_mask("L3H5,F7,L1H0-3", target.shape)
found = accuracy(final(evaluation(target, questions, mask).run(session)))
final(export(session, target, Export(mask, folder + "/pruned", "small")))
try:
    final(trained(Path(folder, "run"), Recipe(1, 2, 16, 16), Path(folder, "gone")))
except HeadroomError as error:
    trainer = str(error)
print(json.dumps({
    "own": [each.MARK for each in (cache, engine, pages)],
    "parts": sorted(name for name in sys.modules if name.partition(".")[0] in ("app", "cache", "engine", "pages")),
    "came": came,
    "same path": sys.path == before,
    "acc": found.acc,
    "trainer": trainer,
    "worker": Worker.__module__,
}))
"""


def called(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=HANG_S, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation")
    called(*pip, "--wheel-dir", folder, REPOSITORY, cwd=folder)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """(the folder of commands, an environment with folders of its own, a folder with modules of a user)."""
    home = tmp_path_factory.mktemp("home")
    called(sys.executable, "-m", "venv", "--without-pip", home / "venv")
    [library] = (home / "venv").glob("lib/python*/site-packages")
    (library / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    pip = (sys.executable, "-m", "pip", "--python", home / "venv" / "bin" / "python", "install", "--no-index")
    called(*pip, "--no-deps", wheel)
    assert {path.name for path in library.iterdir()} == {
        "dependencies.pth",
        "headroom",
        f"{wheel.name.split('-py3')[0]}.dist-info",
    }
    (home / "own").mkdir()
    for part in PARTS:
        (home / "own" / f"{part}.py").write_text(f'MARK = "the {part} of a user"\n')
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HEADROOM_", "PYTHON"))}
    own = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "caches"), "OMP_NUM_THREADS": "1"}
    return home / "venv" / "bin", clean | own | {"PYTHONPATH": str(home / "own")}, home / "own"


def is_untouched(folder):
    """Whether the folder has what the user put there alone. A module that was imported would have left __pycache__."""
    return {path.name for path in folder.iterdir()} == {f"{part}.py" for part in PARTS}


def test_every_module_and_every_file_of_data_is_in_the_wheel_under_one_name(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    alone = ("__init__.py", "app.py", "py.typed", ".streamlit/config.toml")
    ours = {f"headroom/{name}" for name in alone}
    for part in PARTS:
        for file in (REPOSITORY / part).rglob("*"):
            away = {"__pycache__", "data"} & {*file.relative_to(REPOSITORY).parts}
            if file.is_file() and not away and file.name != ".gitignore":
                ours.add(f"headroom/{file.relative_to(REPOSITORY)}")
    assert {name for name in packed if ".dist-info/" not in name} == ours
    assert any(name.endswith(".safetensors") for name in ours) and any(name.endswith(".css") for name in ours)


def test_modules_in_the_wheel_are_those_of_the_clone_but_import_from_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
    for name, source in packed.items():
        file = "headroom.py" if name == "headroom/__init__.py" else name.removeprefix("headroom/")
        assert source.replace(b"headroom.", b"") == (REPOSITORY / file).read_bytes().replace(b"headroom.", b""), name
        found = {module.partition(".")[0] for module in imported(source)}
        assert not found & {"app", *PARTS}, f"{name} imports a part by a name that a module of a user may have"


def imported(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


@pytest.mark.parametrize(
    ("written", "packed"),
    [
        ("from cache import open_store", "from headroom.cache import open_store"),
        ("from engine.x import (  # y\n    a,\n    b\n)", "from headroom.engine.x import (  # y\n    a,\n    b\n)"),
        ("from \\\n  pages import ui", "from \\\n  headroom.pages import ui"),
        ("def f():\n\tfrom engine import cli", "def f():\n\tfrom headroom.engine import cli"),
        ("import os, engine.x as e", "import os, headroom.engine.x as e"),
        ("import cache", "import headroom.cache as cache"),
        ("import cache.store, os", "import headroom.cache.store as cache, headroom.cache as cache, os"),
        ("s = 'é'; import pages; import app", "s = 'é'; import headroom.pages as pages; import headroom.app as app"),
        ("from engineer import x\nfrom .engine import y\nimport pagesize", None),
        ('"""\nfrom engine import x\n"""\nengine = "import cache"  # import pages', None),
    ],
)
def test_an_import_is_packed_so_that_it_binds_the_same_names_on_the_same_line(written, packed):
    spec = importlib.util.spec_from_file_location("package_imports", REPOSITORY / ".ci" / "package_imports.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    for before, after in (("", ""), ("# é\r\n\n", "\nx = 1\n")):
        source = before + written + after
        assert hook.in_package(source.encode()).decode() == before + (packed or written) + after


def test_the_versions_that_are_tested_lie_in_the_ranges_of_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as packed:
        [metadata] = [packed.read(name).decode() for name in packed.namelist() if name.endswith("/METADATA")]
    required = re.findall("^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    ranges = {each.name: each.specifier for each in map(Requirement, required)}
    pins = dict(line.split("==") for line in (REPOSITORY / "requirements.txt").read_text().split())
    assert ranges.keys() == pins.keys()
    for name, pin in pins.items():
        assert ranges[name].contains(pin), f"{name} {pin} is tested, and the wheel wants {ranges[name]}"
        assert {part.operator for part in ranges[name]} == {">=", "<"}


@pytest.mark.slow("installs the wheel, and two commands import torch")
def test_commands_run_from_a_users_folder_and_store_in_the_users_cache_folder(installed):
    commands, environment, folder = installed
    listed = called(commands / "headroom", "tasks", "--json", cwd=folder, env=environment)
    assert "demo_copy" in {task["name"] for task in json.loads(listed)["tasks"]}
    words = "evaluate --task demo_copy --limit 4 --precision fp32 --json".split()
    first, again = (json.loads(called(commands / "headroom", *words, cwd=folder, env=environment)) for _ in range(2))
    assert first["n"] == 4 and first["saved"] and not first["cached"]
    assert again["cached"] and again["acc"] == first["acc"]
    assert (Path(environment["XDG_CACHE_HOME"]) / "headroom" / "results" / "cache.db").is_file()
    assert is_untouched(folder) and not list((commands.parent).rglob("cache.db"))


@pytest.mark.slow("two processes import torch, and a model is exported")
def test_modules_of_a_user_and_of_the_package_live_in_one_process_that_measures_what_a_clone_does(
    installed, tmp_path, capsys, monkeypatch
):
    commands, environment, folder = installed
    script = tmp_path / "script"
    script.mkdir()
    for part in PARTS:
        (script / f"{part}.py").write_bytes((folder / f"{part}.py").read_bytes())
    (script / "run.py").write_text(SCRIPT)
    store, clones = str(tmp_path / "store"), str(tmp_path / "of a clone")
    said = json.loads(called(commands / "python", script / "run.py", store, tmp_path, cwd=tmp_path, env=environment))
    assert said["own"] == [f"the {part} of a user" for part in PARTS] and said["parts"] == list(PARTS)
    assert said["same path"] and set(said["came"]) <= {"__future__", "headroom"}
    begun = f"{tmp_path / 'gone'} does not exist"
    assert said["trainer"].startswith(begun), "the process that trains has begun, and misses the text"
    assert said["worker"] == "headroom.engine.distributed.worker", "as Ray names it to other machines"

    for name in ("HEADROOM_CACHE", "HEADROOM_PRODUCTS"):
        monkeypatch.delenv(name, raising=False)
    for where, is_cached in ((clones, False), (store, True)):
        assert main([*ASKED.split(), "--cache", where]) == 0
        read = json.loads(capsys.readouterr().out)
        assert read["cached"] is is_cached and read["acc"] == said["acc"]
    assert differences(store, clones) == {}
    assert small_model(tmp_path / "pruned", None).num_parameters() > 0


@pytest.mark.slow("starts the app")
def test_the_app_runs_from_a_users_folder_with_its_own_settings(installed):
    commands, environment, folder = installed
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(commands / "headroom"), f"--server.port={port}", "--server.headless", "true"]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + HANG_S
        while not (listening := addresses(process)):
            assert process.poll() is None and time.monotonic() < deadline, "the app does not start"
            time.sleep(0.1)
        assert listening == {("127.0.0.1", port)}
        assert handshake(port, "evil.example", "http://evil.example") == 403
        assert b"<title>" in urlopen(f"http://127.0.0.1:{port}/", timeout=HANG_S).read()
        messages = first_run(port)
    finally:
        process.terminate()
        process.wait(HANG_S)
    [begun] = [message.new_session for message in messages if message.HasField("new_session")]
    assert not begun.config.gather_usage_stats and begun.custom_theme.light.primary_color == "#00649C"
    elements = [m.delta.new_element for m in messages if m.HasField("delta") and m.delta.HasField("new_element")]
    assert not [element.exception.message for element in elements if element.HasField("exception")]
    assert {"Prune", "Bench"} <= {page.page_name for message in messages for page in message.navigation.app_pages}
    assert "Model" in {element.selectbox.label for element in elements}
    assert is_untouched(folder)


def addresses(process):
    connections = psutil.Process(process.pid).net_connections("inet")
    return {(each.laddr.ip, each.laddr.port) for each in connections if each.status == psutil.CONN_LISTEN}


def first_run(port):
    """What the app sends to a browser that opens it, until the first screen is drawn."""
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
    from websockets.sync.client import connect

    origin, found = f"http://127.0.0.1:{port}", []
    address = f"ws://127.0.0.1:{port}/_stcore/stream"
    with connect(address, origin=origin, subprotocols=["streamlit"], max_size=None, proxy=None) as socket:
        socket.send(BackMsg(rerun_script={}).SerializeToString())
        while not found or not found[-1].HasField("script_finished"):
            found.append(ForwardMsg.FromString(socket.recv(HANG_S)))
    return found


def test_a_folder_that_may_not_be_written_to_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    code, users = tmp_path / "clone" / "cache", tmp_path / "caches" / "headroom"
    code.mkdir(parents=True)
    assert default_directory(code) == code / "data"
    assert default_directory(tmp_path / "site-packages" / "headroom" / "cache") == users
    monkeypatch.setattr(os, "access", lambda *more: False)
    assert default_directory(code) == users
