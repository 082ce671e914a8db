"""The frame around every page: the app it must run in, what all tabs share, and the one place that shows errors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NoReturn

import streamlit as st

from cache import Store, open_store
from engine.errors import HeadroomError, one_line, unforeseen
from engine.jobs import Jobs
from engine.memory import bound_growth, return_freed_memory
from engine.models.loading import LoadSpec
from engine.models.session import Session
from engine.readable import is_readable
from pages.ui.page.address import as_written
from pages.ui.page.defaults import idle_budget_s
from pages.ui.page.streamlit_internals import (
    RunEnded,
    forget_previous_fragments,
    is_connected,
    keep_unsent_messages,
    session_id,
)
from pages.ui.page.tables import plain


def require_frame(page: str) -> None:
    """First statement of every page: goes through app.py when the page was opened directly, keeping the address.

    On a fresh server the first visit to a page's own address runs the page alone, without sidebar and set-up.
    """
    if "framed" not in st.session_state:
        st.session_state.goto = page
        st.switch_page("app.py", query_params=as_written())


@contextmanager
def ended_early() -> Iterator[None]:
    """Around the page: one that stops early forgets the fragments of the run before, as one that runs to its end does.

    Streamlit keeps them otherwise. A timer of theirs that fires late would have them drawn where nothing is any more,
    and the browser would show a white page ("Cannot set a node at a delta path"). A run that Streamlit stops, because a
    link opens another page meanwhile, forgets nothing: it may come here late, and the fragments are the next run's by
    then.
    """
    try:
        yield
    except RunEnded:
        forget_previous_fragments()
        raise


@st.cache_resource(show_spinner=False)
def store() -> Store:
    """The result store, one for all tabs."""
    return open_store(is_readable=is_readable)


@st.cache_resource(show_spinner=False)
def runs() -> dict[str, int]:
    """By session: how many runs of a whole page it has had."""
    return {}


def begin_run() -> None:
    """First of all in a run of a whole page: what the run before has shown is not shown any more."""
    keep_unsent_messages()
    known = runs()
    for session in list(known):
        if not is_open(known, (session, known[session])):
            known.pop(session, None)
    if (page := page_of(known)) is not None:
        known[page[0]] = page[1] + 1


def page_of(known: Mapping[str, int]) -> tuple[str, int] | None:
    """The page that is being drawn: its session, and which run of a whole page it is."""
    session = session_id()
    return None if session is None else (session, known.get(session, 0))


def is_open(known: Mapping[str, int], page: tuple[str, int]) -> bool:
    """Whether a browser shows what this run of a page has drawn."""
    session, number = page
    return is_connected(session) and known.get(session) == number


@st.cache_resource(show_spinner=False)
def jobs() -> Jobs:
    """The one worker, for all tabs."""
    bound_growth()
    known = runs()
    return Jobs(return_freed_memory, partial(page_of, known), partial(is_open, known))


@st.cache_resource(show_spinner=False)
def session() -> Session:
    """The store and the one model in memory, for all tabs; only the worker asks it to load."""
    return Session(store())


def in_memory(spec: LoadSpec) -> bool:
    """Whether this model is loaded now."""
    return session().models.holds(spec)


@contextmanager
def errors_shown() -> Iterator[None]:
    """Shows a HeadroomError as its own plain line and ends the run there; what was drawn before stays."""
    try:
        yield
    except HeadroomError as error:
        show_error(str(error))
        end_run()


@contextmanager
def faults_shown() -> Iterator[None]:
    """Around all that is drawn: what nobody foresaw is one line, and in a log file."""
    try:
        yield
    except Exception as error:  # what ends a run is none
        show_error(unforeseen(error))


def budget_s() -> float:
    """Up to how many seconds work may be forecast to take that begins though nobody asked for it."""
    with errors_shown():
        found = idle_budget_s()
    return found


def end_run() -> NoReturn:
    """Ends the run here. Not by st.stop: that takes the place of what was clicked while the page was drawn, which is
    lost then, and nothing that a `finally` draws afterwards is drawn."""
    raise RunEnded


def show_error(line: str) -> None:
    """What is wrong, the value got, what to do."""
    st.error(plain(one_line(line)), icon=":material/error:")
