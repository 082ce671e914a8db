"""A page of another origin: what it shows in a frame is not the app, and starts nothing."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from tests import hub_stand_in as stand_in
from tests.browser.conftest import keyed


@pytest.fixture
def elsewhere():
    """The address of a page, on another port, that has the app in a hidden and in a visible frame."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            content = self.server.page.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_frame_elsewhere_shows_nothing_and_starts_no_download(chromium, app_server, elsewhere, tmp_path):
    hub = stand_in.Hub({"config.json": b"{}"})
    with stand_in.served(hub) as address:
        app, _ = app_server(tmp_path / "results", warm=True, **stand_in.environment(address, tmp_path / "hub"))
        link = f"{app}/?model=facebook/opt-1.3b"
        elsewhere.page = f'<p>elsewhere</p><iframe src="{link}"></iframe><iframe hidden src="{link}"></iframe>'
        tab = chromium.new_context().new_page()
        refused, opened = [], []
        tab.on("console", lambda message: refused.append(message.text) if "frame" in message.text else None)
        tab.on("websocket", lambda socket: opened.append(socket.url))
        tab.goto(f"http://127.0.0.1:{elsewhere.server_port}/")
        tab.wait_for_function("() => document.querySelectorAll('iframe').length == 2")
        tab.wait_for_load_state("networkidle")
        assert len(refused) >= 2 and opened == []
        assert not any(urlsplit(frame.url).netloc == urlsplit(app).netloc for frame in tab.frames)
        tab.goto(link)  # the same link, opened: it is shown, and asks nobody
        keyed(tab, "look up facebook/opt-1.3b").wait_for()
        assert "facebook/opt-1.3b" in tab.get_by_test_id("stMain").inner_text()
        assert hub.requests == [] and len(opened) == 1
        tab.context.close()
