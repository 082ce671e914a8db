"""A wheel is built, installed into an empty environment and run from an empty folder: one command, nothing left behind.

Without the network: the environment has nothing but the wheel, and finds its dependencies where this Python does.
"""

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
from tests.conftest import HANG_S, REPOSITORY
from tests.test_server_is_local_only import handshake

PARTS = ("cache", "engine", "pages")


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
    """(the folder of commands, an environment with folders of its own, an empty folder to stand in)."""
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
    (home / "empty").mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HEADROOM_", "PYTHON"))}
    own = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "caches"), "OMP_NUM_THREADS": "1"}
    return home / "venv" / "bin", clean | own, home / "empty"


def test_every_module_and_every_file_of_data_is_in_the_wheel_under_one_name(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    ours = {f"headroom/{name}" for name in ("__init__.py", "app.py", ".streamlit/config.toml")}
    for part in PARTS:
        for file in (REPOSITORY / part).rglob("*"):
            away = {"__pycache__", "data", "making"} & {*file.relative_to(REPOSITORY).parts}
            if file.is_file() and not away and file.name != ".gitignore":
                ours.add(f"headroom/{file.relative_to(REPOSITORY)}")
    assert {name for name in packed if ".dist-info/" not in name} == ours
    assert any(name.endswith(".safetensors") for name in ours) and any(name.endswith(".css") for name in ours)


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


def test_commands_run_from_an_empty_folder_and_store_in_the_users_cache_folder(installed):
    commands, environment, empty = installed
    listed = called(commands / "headroom", "tasks", "--json", cwd=empty, env=environment)
    assert "demo_copy" in {task["name"] for task in json.loads(listed)["tasks"]}
    words = "evaluate --task demo_copy --limit 4 --precision fp32 --json".split()
    first, again = (json.loads(called(commands / "headroom", *words, cwd=empty, env=environment)) for _ in range(2))
    assert first["n"] == 4 and first["saved"] and not first["cached"]
    assert again["cached"] and again["acc"] == first["acc"]
    assert (Path(environment["XDG_CACHE_HOME"]) / "headroom" / "results" / "cache.db").is_file()
    assert not list(empty.iterdir()) and not list((commands.parent).rglob("cache.db"))


def test_a_program_asks_the_installed_engine(installed):
    commands, environment, empty = installed
    code = "from headroom.engine.requests import ListTasks; print(ListTasks().run())"
    told = called(commands / "python", "-c", code, cwd=empty, env=environment)
    assert "demo_copy" in told and not [*empty.iterdir()]


def test_the_app_runs_from_an_empty_folder_with_its_own_settings(installed):
    commands, environment, empty = installed
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(commands / "headroom"), f"--server.port={port}", "--server.headless", "true"]
    process = subprocess.Popen(command, cwd=empty, env=environment, stdout=subprocess.DEVNULL)
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
    assert {"Prune", "Sweeps"} <= {page.page_name for message in messages for page in message.navigation.app_pages}
    assert "Model" in {element.selectbox.label for element in elements}
    assert not list(empty.iterdir())


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
