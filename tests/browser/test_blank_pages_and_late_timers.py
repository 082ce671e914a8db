"""What goes wrong between browser and server does no harm: a page that an error in Streamlit's front end has removed is
loaded again with its address, but never in a loop, and a timer that fires late finds its part of the page gone."""

from contextlib import suppress

import pytest
from playwright.sync_api import TimeoutError
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.browser.conftest import WAIT_MS, at_rest, await_mark, open_settings, settled_figure

TRIES = 12  # of 5 s


@pytest.fixture
def tab(context):
    """A tab whose errors are expected."""
    tab = context.new_page()
    yield tab
    tab.evaluate("localStorage.clear(); sessionStorage.clear()")
    tab.close()


def test_a_blank_page_is_loaded_again_once(tab, address):
    sockets = []

    def watch(socket):
        sockets.append(socket)
        socket.connect_to_server()

    def fail():
        """An element where the page has no place for one; if it came while the page is drawn, it would be dropped at
        the end of that run."""
        at_rest(tab)
        message = ForwardMsg()
        message.metadata.delta_path.extend([0, 999])
        message.delta.new_element.text.body = "nowhere"
        sockets[-1].send(message.SerializeToString())

    tab.route_web_socket(lambda url: True, watch)
    tab.goto(f"{address}/?precision=fp32&limit=16&order=random&heads=50")
    await_mark(tab, "curve", "estimated")  # last, and the page is drawn once more
    settled_figure(tab, questions=16)
    reloads = []
    tab.on("framenavigated", lambda frame: reloads.append(frame))
    for _ in range(TRIES):
        with suppress(TimeoutError), tab.expect_navigation(wait_until="commit", timeout=5000):
            fail()
        if reloads:
            break
    assert reloads, "a page that went blank is not loaded again"
    await_mark(tab, "curve", "estimated")
    settled_figure(tab, questions=16)
    assert "heads=50" in tab.url and len(sockets) == 2
    tab.evaluate("sessionStorage.setItem('headroom reloaded', Date.now())")  # a busy machine takes a minute until here
    for _ in range(TRIES):
        fail()
        with suppress(TimeoutError):
            tab.locator("#root > p").wait_for(timeout=5000)
            break
    assert tab.locator("#root > p").count(), "nothing says that the page failed twice"
    assert len(sockets) == 2, "it was loaded again and again"


def test_a_late_poll_after_a_run_that_ended_early(page, address):
    polls, servers = [], []

    def watch(socket):
        server = socket.connect_to_server()
        servers.append(server)

        def pass_on(message):
            sent = BackMsg()
            sent.ParseFromString(message)
            if sent.rerun_script.is_auto_rerun:
                polls.append(message)
            server.send(message)

        socket.on_message(pass_on)

    page.set_default_timeout(WAIT_MS)
    page.route_web_socket(lambda url: True, watch)
    page.goto(f"{address}/?precision=fp32&limit=200&order=importance&heads=50&ffns=50")
    page.get_by_test_id("stMetricValue").wait_for()
    polls.clear()  # from here on those of the figure and the curve
    while len(polls) < 3:
        page.wait_for_timeout(100)
    open_settings(page)
    path = page.get_by_label("Your own questions: path of a file", exact=True)
    path.fill("nonsense.jsonl")
    path.press("Enter")
    page.get_by_test_id("stAlert").get_by_text("nonsense").wait_for()
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    page.get_by_test_id("stMetricValue").wait_for(state="detached")  # the browser tidies up what is no longer drawn
    page.wait_for_timeout(1000)
    for poll in polls:
        servers[-1].send(poll)
        page.wait_for_timeout(300)
    page.keyboard.press("Escape")
    task = page.get_by_role("combobox", name="Task", exact=True)
    task.click()
    task.fill("demo_outfit")
    page.get_by_role("option", name="demo_outfit", exact=True).click()
    page.get_by_test_id("stMetricValue").wait_for()
