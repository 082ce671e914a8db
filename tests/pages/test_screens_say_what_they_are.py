"""Every screen says what it is for and what to try, in two lines, under a title of its own; its marks, for tests and
scripts, stay attributes whatever is in them."""

import asyncio
import re

import pytest
import streamlit as st
from starlette.requests import Request
from streamlit.testing.v1 import AppTest

from pages.ui.page import front_page
from pages.ui.page.screens import STORY

SCREENS = [screen for screens in STORY.values() for screen in screens]
ONE_LINE = 112  # letters of the sentence beside the title in a window of 1280 pixels


def test_the_story_has_its_chapters_in_order():
    assert list(STORY) == ["", "Why", "See it", "Watch it learn", "Measure it"] and SCREENS[0].file == "prune"


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.file)
def test_purpose_and_action_are_a_sentence_each(screen):
    assert re.fullmatch(r"[A-Z].*[.?]", screen.purpose) and re.fullmatch(r"[a-z].*\.", screen.action)
    assert len(screen.purpose) <= ONE_LINE and len(screen.action) <= ONE_LINE + len(screen.title)


def test_each_is_on_its_screen_and_in_the_browser_s_title(open_app, monkeypatch):
    titles, set_page_config = [], st.set_page_config
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    monkeypatch.setattr(st, "set_page_config", lambda **more: titles.append(more) or set_page_config(**more))
    for screen in SCREENS:
        at = open_app(screen.file, run=False).run()
        assert not at.exception, at.exception
        [heading] = [each.proto.body for each in at.get("html") if "<h1>" in each.proto.body]
        words = re.sub("<style>.*?</style>|<[^>]+>", "", heading, flags=re.DOTALL)
        assert words == f"{screen.title} {screen.purpose} Try: {screen.action}".replace("'", "&#x27;")
        assert titles[-1] == {"page_title": f"{screen.title} · Headroom"}


def test_a_mark_says_its_state_and_facts_as_attributes():
    def script():
        from pages.ui.page.marks import counts, mark

        mark("figure", "measured", questions=3, model='"><b>', **counts(None))

    [drawn] = AppTest.from_function(script).run().get("html")
    facts = 'data-questions="3" data-model="&quot;&gt;&lt;b&gt;" data-heads="" data-ffns=""'
    assert drawn.proto.body == f'<span data-mark="figure" data-state="measured" {facts}></span>'


@pytest.mark.parametrize("title, file", [("prune", "."), ("continue", "continuation")])
def test_a_title_typed_as_an_address_opens_its_screen(title, file):
    scope = {"type": "http", "path": f"/{title}", "query_string": b"model=demo", "headers": [], "server": ("a", 80)}
    [route] = [each for each in front_page.routes() if each.path == f"/{title}"][:1]
    answer = asyncio.run(route.endpoint(Request(scope)))
    assert answer.headers["location"] == f"{file}?model=demo"
