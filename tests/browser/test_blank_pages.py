"""A page that an error in Streamlit's front end has removed is loaded again with its address, but never in a loop."""

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.browser.conftest import settled_figure


@pytest.fixture
def tab(context_of):
    """A tab whose errors are expected."""
    tab = context_of("light").new_page()
    yield tab
    tab.evaluate("localStorage.clear(); sessionStorage.clear()")
    tab.close()


def test_a_blank_page_is_loaded_again_once(tab, address):
    sockets = []

    def watch(socket):
        sockets.append(socket)
        socket.connect_to_server()

    def fail():
        """An element where the page has no place for one."""
        message = ForwardMsg()
        message.metadata.delta_path.extend([0, 999])
        message.delta.new_element.text.body = "nowhere"
        sockets[-1].send(message.SerializeToString())

    tab.route_web_socket(lambda url: True, watch)
    tab.goto(f"{address}/?precision=fp32&prune_limit=16&prune_ranking=random&prune_heads=50")
    settled_figure(tab, questions=16)
    with tab.expect_navigation():
        fail()
    settled_figure(tab, questions=16)
    assert "prune_heads=50" in tab.url and len(sockets) == 2
    fail()
    tab.locator("#root > p").wait_for()
    assert len(sockets) == 2, "it was loaded again and again"
