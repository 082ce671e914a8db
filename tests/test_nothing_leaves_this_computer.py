"""Promise P8: with model and data on this computer, nothing connects anywhere else, and no telemetry is sent."""

import ast
import json
import re
import socket

import pytest

from engine.__main__ import main
from tests.conftest import REPOSITORY
from tests.engine.fixtures import write_questions
from tests.test_imports_go_one_way import sources

NETWORK = (
    r"socket|ssl|ftplib|imaplib|poplib|smtplib|http\.client|urllib\.request|xmlrpc\.client|requests|httpx|httpcore|urllib3"
    r"|aiohttp|websockets|fsspec|s3fs|gcsfs|boto3|paramiko|grpc|ray|datasets|huggingface_hub"
)
CLIENTS = re.compile(rf"({NETWORK})(\.|$)")  # importing one of these modules, or a name from it, is use of the network
LOCAL = re.compile(  # of these libraries, but without use of the network
    r"huggingface_hub\.(constants|errors)(\.|$)|huggingface_hub\.hf_hub_url$|urllib\.request\.(getproxies|proxy_bypass)$"
)
DOWNLOADS = {"load_dataset", "snapshot_download", "hf_hub_download", "cached_file", "create_connection", "urlopen"}
LOADERS = {"from_pretrained"}  # download what a folder lacks, unless they are told to stay on this computer
WORDS = re.compile(rf"\b(http|urllib|xmlrpc|{NETWORK}|{'|'.join(DOWNLOADS | LOADERS)})\b")  # in any use


def test_the_guard_of_these_tests_works():
    with socket.socket() as outside, pytest.raises(AssertionError, match="tried to connect"):
        outside.connect(("192.0.2.1", 80))


@pytest.mark.parametrize("task", ["embedded", "own"])
def test_a_run_from_the_command_line(task, tmp_path, tiny_opt, capsys, monkeypatch):
    """Under the guard of tests/conftest.py that fails any connection beyond 127.0.0.1, the hub not declared offline."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    name = "demo_copy" if task == "embedded" else str(write_questions(tmp_path / "own.jsonl", 20))
    model = "demo" if task == "embedded" else str(tiny_opt)
    for command in (
        ["evaluate", "--prune-heads", "50", "--order-questions", "16"],
        ["importance", "--out", str(tmp_path / "scores.csv")],
    ):
        shared = ["--model", model, "--task", name, "--limit", "16", "--cache", str(tmp_path / "results"), "--json"]
        assert main([*command, *shared]) == 0
        assert json.loads(capsys.readouterr().out)["n"] == 16


def network_use(source: str) -> set[str]:
    """The network clients that a module imports and the downloads that it calls."""
    found = set()
    for node in ast.walk(ast.parse(source)) if WORDS.search(source) else ():
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            is_local = any(keyword.arg in (None, "local_files_only") for keyword in node.keywords)
            found |= {called} & (DOWNLOADS if is_local else DOWNLOADS | LOADERS)
            continue
        else:
            continue
        found |= {name for name in names if CLIENTS.match(name) and not LOCAL.match(name)}
    return found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import socket", {"socket"}),
        ("from urllib.request import urlopen", {"urllib.request.urlopen"}),
        ("from urllib import request", {"urllib.request"}),
        ("def load():\n    from fsspec.core import url_to_fs", {"fsspec.core.url_to_fs"}),
        ("from huggingface_hub import HfApi, constants", {"huggingface_hub.HfApi"}),
        ("transformers.AutoTokenizer.from_pretrained('gpt2')", {"from_pretrained"}),
        ("transformers.AutoTokenizer.from_pretrained('gpt2', local_files_only=True)", set()),
        ("from urllib.parse import urlsplit\nfrom engine.questions.rendering import select", set()),
    ],
)
def test_network_use_is_found_in_source(line, found):
    assert network_use(line) == found


def test_the_modules_that_use_the_network_are_those_in_the_architecture():
    text = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    [listed] = re.findall(r"^\*\*Network\.\*\* Only these modules use it.*\n((?:.+\n|\n(?=-))+)", text, re.M)
    using = {path.relative_to(REPOSITORY).as_posix() for path in sources() if network_use(path.read_text("utf-8"))}
    assert set(re.findall(r"`([\w/]+\.py)`", listed)) == using
