"""The frame of every page: the app it must run in, objects that all tabs share, and the one place that shows errors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import streamlit as st

from cache import Store, open_store
from engine.errors import HeadroomError, one_line, unforeseen
from engine.jobs import Jobs
from engine.memory import bound_growth, return_freed_memory
from engine.models.in_memory import Models
from engine.models.loading import LoadSpec
from engine.models.session import Session
from engine.receipts import is_readable
from engine.shipped import shipped_records
from pages.ui.page.address import as_written
from pages.ui.page.defaults import FIRST_FIGURE, idle_budget_s
from pages.ui.page.streamlit_internals import (
    RunEnded,
    forget_previous_fragments,
    is_connected,
    keep_unsent_messages,
    put_the_browser_first,
    session_id,
)
from pages.ui.page.tables import plain

MODELS = "models"  # in a tab's notes: those that it shows
tab = session_id  # the tab that is being drawn or clicked in


def require_frame(page: str) -> None:
    """First statement of every page: goes through app.py when the page was opened directly, keeping the address.

    On a fresh server the first visit to a page's own address runs the page alone, without the bar and set-up.
    """
    if "framed" not in st.session_state:
        st.session_state.goto = page
        st.switch_page("app.py", query_params=as_written())


@contextmanager
def ended_early() -> Iterator[None]:
    """Wraps the page: a run that stops early forgets the fragments of the previous run, like one that completes.

    Otherwise Streamlit keeps them. A timer of theirs that fires late would redraw them into containers that no longer
    exist, and the browser would show a white page ("Cannot set a node at a delta path").
    """
    try:
        yield
    except RunEnded:
        forget_previous_fragments()
        raise


@st.cache_resource(show_spinner=False)
def store() -> Store:
    """Returns the result store, one for all tabs."""
    return open_store(is_readable=is_readable)


@st.cache_resource(show_spinner=False)
def runs() -> dict[str, int]:
    """Returns the number of whole-page runs by session."""
    return {}


@st.cache_resource(show_spinner=False)
def _notes() -> dict[str | None, dict[str, Any]]:
    """Returns by session what `notes` returns."""
    return {}


def notes() -> dict[str, Any]:
    """Returns what this tab remembers from run to run and no longer once it is closed, unlike its session state."""
    return _notes().setdefault(tab(), {})


def begin_run() -> None:
    """Begins a run of a whole page: drawings of the previous run are no longer shown, and closed tabs are forgotten."""
    keep_unsent_messages()
    put_the_browser_first()
    known = runs()
    for session in {*known, *_notes()}:
        if not is_here(session):
            known.pop(session or "", None)
            _notes().pop(session, None)
    jobs().forget_closed()
    if (page := page_of(known)) is not None:
        known[page[0]] = page[1] + 1


def page_of(known: Mapping[str, int]) -> tuple[str, int] | None:
    """Returns the page being drawn: its session, and the number of its whole-page run."""
    session = session_id()
    return None if session is None else (session, known.get(session, 0))


def is_open(known: Mapping[str, int], page: tuple[str, int]) -> bool:
    """Returns whether a browser shows the drawings of this run of a page."""
    session, number = page
    return is_connected(session) and known.get(session) == number


def is_here(session: str | None) -> bool:
    """Returns whether a tab is open; threads that run no page always are."""
    return session is None or is_connected(session)


@st.cache_resource(show_spinner=False)
def jobs() -> Jobs:
    """Returns the jobs of the measuring thread, for all tabs."""
    bound_growth()
    known, end_if_replaced = runs(), partial(st.session_state.get, "framed")  # as any access, if another run waits
    return Jobs(return_freed_memory, partial(page_of, known), partial(is_open, known), tab, is_here, end_if_replaced)


@st.cache_resource(show_spinner=False)
def trainings() -> Jobs:
    """Returns the jobs that train models, for all tabs: one run at a time."""
    return Jobs()


@st.cache_resource(show_spinner=False)
def session() -> Session:
    """Returns the store and the models in memory, for all tabs; only the measuring thread loads models."""
    return Session(store(), Models(store(), partial(_models_of, _notes())), shipped_records())


def show_models(*specs: LoadSpec) -> None:
    """Notes the models that this tab shows: they stay in memory, as far as there is room."""
    notes()[MODELS] = frozenset(specs)


def _models_of(noted: Mapping[str | None, Mapping[str, Any]]) -> frozenset[LoadSpec]:
    """Returns the models that open tabs show."""
    return frozenset().union(*(each.get(MODELS, ()) for tab, each in list(noted.items()) if is_here(tab)))


@contextmanager
def errors_shown() -> Iterator[None]:
    """Shows a HeadroomError as one plain line and ends the run there; earlier drawings stay."""
    try:
        yield
    except HeadroomError as error:
        show_error(str(error))
        end_run()


@contextmanager
def faults_shown() -> Iterator[None]:
    """Wraps all drawing: an unexpected error becomes one line on the page and an entry in a log file."""
    try:
        yield
    except Exception as error:  # exceptions that end a run are not among these
        show_error(unforeseen(error))


def budget_s() -> float:
    """Returns the budget of background work, in forecast seconds."""
    with errors_shown():
        found = idle_budget_s()
    return found


def first_figure_s() -> float:
    """Returns the budget of what a screen opens with, in forecast seconds: it is measured without being asked for."""
    return FIRST_FIGURE * budget_s()


def end_run() -> NoReturn:
    """Ends the run here. Unlike st.stop, which would discard a click made while the page was drawn, and everything that
    a `finally` draws afterwards."""
    raise RunEnded


def show_error(line: str) -> None:
    """Draws an error: the problem, the value, what to do."""
    st.error(plain(one_line(line)), icon=":material/error:")
