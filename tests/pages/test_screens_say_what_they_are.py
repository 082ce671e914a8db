"""Every screen says what it is for and what to try, in two lines, under a title of its own; its marks, for tests and
scripts, stay attributes whatever is in them."""

import asyncio
from types import SimpleNamespace
from urllib.parse import urljoin

import pytest
import streamlit as st
from starlette.requests import Request
from starlette.routing import Match
from streamlit.testing.v1 import AppTest

import headroom
from pages.ui.page import address, front_page
from pages.ui.page.screens import STORY

SCREENS = [screen for screens in STORY.values() for screen in screens]


def test_a_mark_says_its_state_and_facts_as_attributes():
    def script():
        from pages.ui.page.marks import counts, mark

        mark("figure", "measured", questions=3, model='"><b>', **counts(None))

    [drawn] = AppTest.from_function(script).run().get("html")
    facts = 'data-questions="3" data-model="&quot;&gt;&lt;b&gt;" data-heads="" data-ffns=""'
    assert drawn.proto.body == f'<span data-mark="figure" data-state="measured" {facts}></span>'


PATH = "/tools/headroom"  # below which the app may be served


def answer(address, path=""):
    """The app's own answer to an address of this computer, or None."""
    scope = {"type": "http", "method": "GET", "path": address, "query_string": b"model=demo", "headers": []}
    for route in front_page.routes(path):
        if route.matches(scope)[0] == Match.FULL:
            return asyncio.run(route.endpoint(Request(scope | {"server": ("a", 80)})))
    return None


@pytest.mark.parametrize("path", ["", PATH])
def test_every_screen_has_an_address_below_the_path(path):
    for screen in SCREENS:
        where = f"{path}/{screen.file if screen != SCREENS[0] else ''}"
        shown = answer(where, path)
        assert shown.status_code == 200 and front_page.SCRIPT.read_text() in shown.body.decode(), where
        assert not path or screen == SCREENS[0] or answer(f"/{screen.file}", path) is None


@pytest.mark.parametrize("path", ["", PATH])
def test_the_title_of_the_first_screen_typed_as_an_address_opens_it(path):
    where = f"{path}/prune"
    assert urljoin(where, answer(where, path).headers["location"]) == f"{path}/?model=demo"


def test_the_root_leads_to_the_path():
    for where in ("/", PATH):
        assert urljoin(where, answer(where, PATH).headers["location"]) == f"{PATH}/?model=demo"


@pytest.mark.parametrize("text", ["tools/headroom", "/tools/headroom", "tools/headroom/", "//tools//headroom//"])
def test_a_path_is_written_in_any_way(text):
    assert front_page.served_path(text) == PATH
    assert front_page.served_path("/") == front_page.served_path("") == ""


@pytest.mark.parametrize("text", ["a b", "../x", "a/./b", "a?b", "a#b", "a%2fb", "ä", "a\nb", "http://a"])
def test_a_path_that_no_address_has_is_one_line(text, capsys):
    with pytest.raises(ValueError, match="expected a path such as tools/headroom"):
        front_page.served_path(text)
    assert headroom.open_app([f"--server.baseUrlPath={text}"], lambda: None) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("headroom: server.baseUrlPath is ")


@pytest.mark.parametrize("base", ["/heads", "/x/text", "/prune", "/a/b"])
def test_a_path_may_end_as_a_screen_is_called(base, monkeypatch):
    """Streamlit's own address of the page then lacks that end, on the first screen."""
    monkeypatch.setattr(st, "get_option", {"server.baseUrlPath": base}.get)
    for url in (base, f"{base}/", base.rpartition("/")[0]):
        assert address.screen_path(f"http://a:80{url}") == "/"
    for screen in SCREENS:
        assert address.screen_path(f"http://a:80{base}/{screen.file}") == f"/{screen.file}"


@pytest.mark.parametrize("path", ["", "tools/headroom", "/tools/headroom/"])
def test_links_of_slides_are_kept_without_the_path(path, monkeypatch):
    monkeypatch.setattr(st, "get_option", {"server.baseUrlPath": path}.get)
    monkeypatch.setattr(address, "as_written", lambda: {"text_text": ["a b"], "empty": [""], "tasks": ["a", "b"]})
    before = PATH if path else ""
    assert address.base_path() == before
    for shown, screen in (("/", "/"), ("", "/"), ("/text", "/text")):
        monkeypatch.setattr(st, "context", SimpleNamespace(url=f"http://127.0.0.1:8501{before}{shown}"))
        assert address.link() == f"{screen}?text_text=a+b&tasks=a&tasks=b", "no more than the controls"
