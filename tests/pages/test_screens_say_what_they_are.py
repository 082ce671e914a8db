"""Every screen says what it is for and what to try, in two lines, under a title of its own."""

import re

import pytest
import streamlit as st
from streamlit.util import calc_hash

from pages.ui.page.screens import STORY
from tests.conftest import REPOSITORY

SCREENS = [screen for screens in STORY.values() for screen in screens]
ONE_LINE = 112  # letters of the sentence beside the title in a window of 1280 pixels


def test_every_page_stands_in_the_story_once():
    assert sorted(screen.file for screen in SCREENS) == sorted(file.stem for file in REPOSITORY.glob("pages/*.py"))
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
        at = open_app(run=False)
        at.wanted_page_hash = "" if screen.file == "prune" else calc_hash(screen.file)
        at.run()
        assert not at.exception, at.exception
        [heading] = [each.proto.body for each in at.get("html") if "<h1>" in each.proto.body]
        words = re.sub("<[^>]+>", "", heading)
        assert words == f"{screen.title} {screen.purpose} Try: {screen.action}".replace("'", "&#x27;")
        assert titles[-1] == {"page_title": f"{screen.title} · Headroom"}
