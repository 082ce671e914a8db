"""P9: the app listens on 127.0.0.1 alone and refuses a WebSocket whose Host it does not know (DNS rebinding)."""

import base64
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
    assert handshake(port, f"127.0.0.1:{port}", f"http://127.0.0.1:{port}") == 101
    assert handshake(port, f"localhost:{port}", f"http://localhost:{port}") == 101


def test_a_page_of_another_site_cannot_open_the_socket(app):
    port = urlsplit(app[0]).port
    assert handshake(port, f"127.0.0.1:{port}", "http://evil.example") == 403


def test_the_config_says_so():
    config = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
    assert config["server"]["address"] == "127.0.0.1"
    assert config["server"]["allowedHosts"] == ["localhost", "127.0.0.1"]
    assert config["browser"]["gatherUsageStats"] is False
    for theme in (config["theme"]["light"], config["theme"]["dark"]):
        assert len(theme["chartSequentialColors"]) == len(theme["chartDivergingColors"]) == 10
