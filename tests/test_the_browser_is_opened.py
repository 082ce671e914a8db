"""The app is shown in the browser once the server takes connections, and imports what screens need until then."""

import socket
import threading
import webbrowser

import pytest

import headroom


@pytest.mark.parametrize("path", ["", "tools/headroom"])
def test_the_browser_is_opened_when_the_server_takes_connections(monkeypatch, path):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        opening = threading.Thread(target=headroom._open_browser, args=("127.0.0.1", port, path))
        opening.start()
        opening.join(5 * headroom.SOON_S)
        assert opening.is_alive() and not opened
        server.listen()
        opening.join(10)
    assert opened == [f"http://127.0.0.1:{port}{path and f'/{path}'}"]


def test_what_the_first_screen_imports_can_be_imported_ahead():
    headroom._import_screens()
