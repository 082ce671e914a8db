"""P9: the app listens on 127.0.0.1 alone, answers to this computer's names alone (DNS rebinding), and in no frame."""

import base64
import http.client
import json
import os
import socket
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from tests.conftest import HANG_S

CONFIG = Path(__file__).resolve().parent.parent / ".streamlit" / "config.toml"


@pytest.fixture(scope="module")
def app(app_server):
    return app_server()


def handshake(port: int, host: str, origin: str) -> int:
    """The HTTP status of a WebSocket handshake."""
    key = base64.b64encode(os.urandom(16)).decode()
    request = (
        f"GET /_stcore/stream HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as connection:
        connection.sendall(request.encode())
        return int(connection.recv(1024).split()[1])


def answer(port: int, path: str, host: str, origin: str = "") -> http.client.HTTPResponse:
    """The response to a plain request under that name, read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", host)
    if origin:
        connection.putheader("Origin", origin)
    connection.endheaders()
    response = connection.getresponse()
    response.content = response.read()
    connection.close()
    return response


def test_it_listens_on_this_computer_only(app):
    address, process = app
    listening = {
        (connection.laddr.ip, connection.laddr.port)
        for connection in psutil.Process(process.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {("127.0.0.1", urlsplit(address).port)}


def test_a_foreign_host_is_refused(app):
    port = urlsplit(app[0]).port
    assert handshake(port, "evil.example", "http://evil.example") == 403
    assert handshake(port, f"evil.example:{port}", f"http://evil.example:{port}") == 403
    assert handshake(port, f"localhost.:{port}", f"http://localhost.:{port}") == 403
    assert handshake(port, f"127.0.0.1:{port}", f"http://127.0.0.1:{port}") == 101
    assert handshake(port, f"localhost:{port}", f"http://localhost:{port}") == 101


FILES = ("_stcore/health", "_stcore/host-config", "_stcore/metrics", "_stcore/upload_file/a/b", "favicon.png",
         "media/x", "static/x.js", "component/x/y", "heads", "")  # fmt: skip


@pytest.mark.parametrize("file", FILES)
def test_pages_and_files_answer_to_the_names_of_this_computer_alone(app, file):
    port = urlsplit(app[0]).port
    foreign = ("evil.example", f"evil.example:{port}", f"localhost.:{port}", "localhost.example", "", "x@127.0.0.1")
    for host in foreign:
        assert answer(port, f"/{file}", host).status == 403, host
    for own in (f"127.0.0.1:{port}", f"localhost:{port}", "LOCALHOST"):
        assert answer(port, f"/{file}", own).status != 403, own


def test_no_page_stands_in_a_frame_or_asks_elsewhere(app):
    port = urlsplit(app[0]).port
    for path in ("/", "/heads", "/favicon.png", "/gone"):
        headers = answer(port, path, "localhost").headers
        assert headers["X-Frame-Options"] == "DENY"
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["frame-ancestors"] == "'none'" and policy["default-src"] == "'self'"
        assert not any("*" in sources or "http" in sources or "ws:" in sources for sources in policy.values())
    assert json.loads(answer(port, "/_stcore/host-config", "localhost").content)["allowedOrigins"] == []


def test_a_page_of_another_site_cannot_open_the_socket(app):
    port = urlsplit(app[0]).port
    others = ("evil.example", "localhost", "localhost:1", f"localhost:{port}1", f"127.0.0.1:{port}.evil.example",
              f"evil.example:{port}", f"127.0.0.1:{port}")  # fmt: skip
    for origin in ("null", *(f"http://{other}" for other in others)):
        assert handshake(port, f"localhost:{port}", origin) == 403, origin
    assert answer(port, "/_stcore/health", f"localhost:{port}", "http://localhost:1").status == 403
    assert answer(port, "/_stcore/health", f"localhost:{port}", f"http://localhost:{port}").status == 200


def test_the_config_says_so():
    config = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
    assert config["server"]["address"] == "127.0.0.1"
    assert config["server"]["allowedHosts"] == ["localhost", "127.0.0.1"]
    assert config["browser"]["gatherUsageStats"] is False
    assert config["client"]["allowedOrigins"] == []
    for theme in (config["theme"]["light"], config["theme"]["dark"]):
        assert len(theme["chartSequentialColors"]) == len(theme["chartDivergingColors"]) == 10
