"""A page of another origin: what it shows in a frame is not the app, and starts nothing."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from tests import hub_stand_in as stand_in
from tests.browser.conftest import keyed


@pytest.fixture
def elsewhere(tmp_path):
    """A folder, and the address on another port under which its files are served."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}/page.html"
        server.shutdown()


def test_a_frame_elsewhere_shows_nothing_and_starts_no_download(context, app_server, elsewhere, tmp_path):
    hub, (folder, page) = stand_in.Hub({"config.json": b"{}"}), elsewhere
    with stand_in.served(hub) as address:
        app, _ = app_server(tmp_path / "results", warm=True, **stand_in.environment(address, tmp_path / "hub"))
        link = f"{app}/?model=facebook/opt-1.3b"
        frames = f'<iframe src="{link}"></iframe><iframe hidden src="{link}"></iframe>'
        (folder / "page.html").write_text(f"<p>elsewhere</p>{frames}")
        tab = context.new_page()
        refused, opened = [], []
        tab.on("console", lambda message: refused.append(message.text) if "frame" in message.text else None)
        tab.on("websocket", lambda socket: opened.append(socket.url))
        tab.goto(page)
        tab.wait_for_function("() => document.querySelectorAll('iframe').length == 2")
        tab.wait_for_load_state("networkidle")
        assert len(refused) >= 2 and opened == []
        assert not any(urlsplit(frame.url).netloc == urlsplit(app).netloc for frame in tab.frames)
        tab.goto(link)  # the same link, opened: it is shown, and asks nobody
        keyed(tab, "look up facebook/opt-1.3b").wait_for()
        assert "facebook/opt-1.3b" in tab.get_by_test_id("stMain").inner_text()
        assert hub.requests == [] and len(opened) == 1
        tab.close()
