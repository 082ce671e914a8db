"""The select box of tasks: typing filters by substring, the first entry adds the user's own questions, and their files
come after the tasks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from engine.questions.tasks import OWN_SUFFIXES
from pages.ui.page.address import current_value
from pages.ui.page.streamlit_internals import DeltaGenerator, rewrite_param
from pages.ui.page.widget_writes import follow_default, hold, write

ADD = "Add your own questions …"
IN = " in "  # between the name of a file and its folder
OWN_FILES = "own question files"  # in the session: paths that were chosen on any screen


def task_box(
    where: DeltaGenerator,
    label: str,
    names: Sequence[str],
    key: str,
    add: Callable[[], None] | None = None,
    **more: Any,
) -> str:
    """Draws the box, bound to the address; returns the name of a task or the path of a file. `add` is called when the
    first entry is chosen, and the task stays as it was; without it, that entry is missing.

    New names cannot be typed into the box itself: Streamlit puts "Add: ..." first and takes it on Enter, so that
    "transl" became a task of that name.
    """
    state, current = st.session_state, f"{key} current"
    follow_default(key, names[0])
    hold(key)
    rewrite_param(key, lambda values: None if values[-1] in ("", ADD) else label_of(path_of(values[-1])))
    tasks = _with_own_files(names, key)
    options = [ADD, *tasks] if add else tasks

    def changed() -> None:
        if add is not None and state[key] == ADD:
            write(key, state.get(current, tasks[0]))
            add()

    about: dict[str, Any] = {
        "bind": "query-params",
        "filter_mode": "contains",
        "index": options.index(tasks[0]),
        "format_func": label_of,
        **more,
    }
    state[current] = name = str(where.selectbox(label, options, key=key, on_change=changed, **about)).strip()
    return name


def label_of(task: str) -> str:
    """Returns a task as the box and the address show it: a file's name before its folder, as the box cuts the end."""
    folder, slash, name = task.rpartition("/")
    return f"{name}{IN}{folder or '/'}" if slash and name.endswith(OWN_SUFFIXES) else task


def path_of(label: str) -> str:
    """Returns the task with this label; a path is its own."""
    name, is_in, folder = label.partition(IN)
    return f"{folder.rstrip('/')}/{name}" if is_in and name.endswith(OWN_SUFFIXES) else label


def _with_own_files(names: Sequence[str], key: str) -> list[str]:
    """Returns the names, then the user's own files, and a value set by the address or another part of the app."""
    chosen = "" if current_value(key) == ADD else path_of(current_value(key))
    files = st.session_state.setdefault(OWN_FILES, [])
    if chosen.endswith(OWN_SUFFIXES) and chosen not in files:
        files.append(chosen)
    return list(dict.fromkeys([*names, *files, *([chosen] if chosen else [])]))
