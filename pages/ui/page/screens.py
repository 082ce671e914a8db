"""Every screen's title, purpose, one thing to try, and place in the story.

The navigation, the line on top of each screen and the browser's title all come from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from pages.ui.page.streamlit_internals import PAGE_STYLE

HEADING = "heading"  # in the session: where it is drawn
ACTIONS, PRESENT = "actions", "present at"  # in the session: the places of its buttons, of the screen and of the app
HEADLINE = "headline of "  # in the session, with the file of a screen: the finding in its heading
CSS = f"<style>{Path(__file__).with_suffix('.css').read_text(encoding='utf-8')}</style>"

Bar = Literal["study", "pruning", "model", ""]  # all of the study's bar, all but its questions, the model, nothing


@dataclass(frozen=True)
class Screen:
    """A screen of the app."""

    file: str  # in pages/
    title: str  # in the navigation and the heading
    icon: str  # in the navigation
    purpose: str  # one sentence
    action: str  # one thing to try
    bar: Bar = ""  # what it shows of the bar of the study


# In order, by group; the first is opened first.
STORY: Mapping[str, tuple[Screen, ...]] = {
    "": (
        Screen(
            "prune",
            "Prune",
            "content_cut",
            "How many questions does the model still answer with heads and FFNs switched off?",
            "press “Remove induction heads”, or drag the slider. Heads shows which heads matter.",
            bar="study",
        ),
        Screen(
            "heads",
            "Heads",
            "grid_view",
            "Which attention heads matter for a task, what they do, and whether other tasks need the same ones.",
            "click a head: what it is, where it looks, what it costs alone.",
            bar="study",
        ),
        Screen(
            "text",
            "Text",
            "format_ink_highlighter",
            "A text, token by token: which words the pruned model predicts worse, and where the heads look.",
            "press “Prune the induction heads”, and click a name that returns.",
            bar="pruning",
        ),
        Screen(
            "training",
            "Training",
            "school",
            "Two small models in training: in one, induction heads form suddenly, with copying.",
            "press “Play” and watch the second copy become predictable as heads match prefixes.",
        ),
    ),
    "Everything else": (
        Screen(
            "bench",
            "Bench",
            "science",
            "Every measurement there is: choose one, set its fields, and see its result.",
            "type a word of what you want to know into “Measurement”.",
            bar="model",
        ),
    ),
}


def navigation() -> st.Page:
    """Draws the navigation, the screens by group; returns the open one."""
    first = next(iter(STORY.values()))[0]
    pages = {group: [_page(each, each == first) for each in screens] for group, screens in STORY.items()}
    return st.navigation(pages, expanded=True)


def screen_of(name: str) -> Screen:
    """Returns the screen of this title, or in this file."""
    [screen] = [each for screens in STORY.values() for each in screens if name in (each.title, each.file)]
    return screen


def draw_heading(page: st.Page) -> None:
    """Draws, first on every screen, its title, purpose or the last finding, and what to try, with the places of its
    buttons next to it; the browser's tab is named after it."""
    screen = screen_of(page.title)
    row = st.container(key="title_row", horizontal=True, gap="small")
    row.title(screen.title, anchor=False, width="content")
    words_at = row.container(key="title_words")
    words_at.html(f'<span data-mark="style"></span>{CSS}{PAGE_STYLE}')  # what changes has no style for a moment
    st.session_state[HEADING] = words_at.empty()
    kwargs: dict[str, Any] = {"horizontal": True, "width": "content", "gap": "small"}
    st.session_state[ACTIONS] = row.container(key="title_screen", **kwargs)
    st.session_state[PRESENT] = row.container(key="title_app", **kwargs)
    st.set_page_config(page_title=f"{screen.title} · Headroom")
    _draw_words(screen)


def draw_headline(file: str, finding: str) -> None:
    """Draws a finding, as Markdown, in the heading of this file's screen, which is open; "" draws its purpose."""
    if st.session_state.get(HEADLINE + file, "") != finding:
        st.session_state[HEADLINE + file] = finding
        _draw_words(screen_of(file))


def _draw_words(screen: Screen) -> None:
    line = st.session_state.get(HEADLINE + screen.file) or screen.purpose
    st.session_state[HEADING].markdown(f"{line}  \n**Try:** {screen.action}")


def _page(screen: Screen, first: bool) -> st.Page:
    file, icon = f"pages/{screen.file}.py", f":material/{screen.icon}:"
    return st.Page(file, title=screen.title, icon=icon, default=first, help=screen.purpose)
