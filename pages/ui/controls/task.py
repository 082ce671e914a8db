"""The task of the study: its select box, and a user's own questions or word pairs.

These are a file given by its path, uploaded, or pasted. Except by path they are kept with the results, by their
content, so that a link that names one always means the same questions.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from engine.errors import HeadroomError
from engine.files import write_whole
from engine.questions.faults import RowFault
from engine.questions.rendering import RenderedQuestions, TooFewExamples
from engine.questions.tasks import OWN, OWN_PAIRS, OWN_SUFFIXES
from pages.ui.controls.study import set_study, study
from pages.ui.page.address import current_value
from pages.ui.page.defaults import SHOT_COUNTS
from pages.ui.page.marks import mark
from pages.ui.page.runtime import show_error, store
from pages.ui.page.streamlit_internals import DeltaGenerator, rewrite_param
from pages.ui.page.tables import plain
from pages.ui.page.widget_writes import follow_default, hold, write

MENU = "study_settings"  # the menu of the bar, which has these fields
ADD = "Add your own questions …"
IN = " in "  # between the name of a file and its folder
OWN_FILES = "own question files"  # in the session: paths that were chosen
FOLDER = "questions"  # of uploaded files, in the folder of the results
PATH, UPLOADED, PASTED = "own_path", "own_file", "own_pasted"  # keys of the fields
FAULT, FEWER = "own fault", "own fewer examples"  # in the session: what the next run says and sets
MOST_MB = 20  # of an uploaded file; one named by its path may be larger
TASK_HELP = (
    "A task of EleutherAI's lm-evaluation-harness, or your own questions. Type part of a name to filter. The examples "
    "stand in the prompt of each question (shots): 0-shot, 1-shot, 5-shot."
)
FORMATS = """{"context": "The capital of France is", "choices": ["Paris", "Rome"], "gold": 0}

or question,answer
   cat,cats"""
HELP = (
    "The file never leaves this computer. One third of the rows, chosen by content, is used for rankings and solved "
    "examples and is never asked. To choose them yourself, put `mine.train.jsonl` next to `mine.jsonl` and give its "
    "path."
)


def choose_task(where: DeltaGenerator, names: Sequence[str]) -> str:
    """Draws the box, bound to the address; returns the name of a task or the path of a file. Its first entry opens the
    menu with the fields for the user's own questions, and the task stays as it was.

    New names cannot be typed into the box itself: Streamlit puts "Add: ..." first and takes it on Enter, so that
    "transl" became a task of that name.
    """
    follow_default("task", names[0])
    hold("task")
    rewrite_param("task", lambda values: None if values[-1] in ("", ADD) else label_of(path_of(values[-1])))
    name = where.selectbox(
        "Task",
        [ADD, *_with_own_files(names)],
        index=1,
        format_func=label_of,
        key="task",
        help=TASK_HELP,
        on_change=_open_menu,
        bind="query-params",
        filter_mode="contains",
    )
    return str(name).strip()


def _open_menu() -> None:
    if st.session_state["task"] == ADD:
        write("task", study().task.name)
        st.session_state[MENU] = True


def label_of(task: str) -> str:
    """Returns a task as the box and the address show it: a file's name before its folder, as the box cuts the end."""
    folder, slash, name = task.rpartition("/")
    return f"{name}{IN}{folder or '/'}" if slash and name.endswith(OWN_SUFFIXES) else task


def path_of(label: str) -> str:
    """Returns the task with this label; a path is its own."""
    name, is_in, folder = label.partition(IN)
    return f"{folder.rstrip('/')}/{name}" if is_in and name.endswith(OWN_SUFFIXES) else label


def _with_own_files(names: Sequence[str]) -> list[str]:
    """Returns the names, then the user's own files, and a value set by the address or another part of the app."""
    chosen = "" if current_value("task") == ADD else path_of(current_value("task"))
    files = st.session_state.setdefault(OWN_FILES, [])
    if chosen.endswith(OWN_SUFFIXES) and chosen not in files:
        files.append(chosen)
    return list(dict.fromkeys([*names, *files, *([chosen] if chosen else [])]))


def draw_own_questions(where: DeltaGenerator) -> None:
    """Draws the fields; a file named or uploaded there becomes the task."""
    where.text_input(
        "Your own questions: path of a file", key=PATH, placeholder=f"~/mine{OWN}", help=HELP, on_change=_use_path
    )
    where.file_uploader(
        "Or upload a file", OWN_SUFFIXES, key=UPLOADED, help=HELP, on_change=_use_file, max_upload_size=MOST_MB
    )
    with where.form("own_form", border=False):  # of a form, Ctrl+Enter in the field is the button
        st.text_area("Or paste the rows", key=PASTED, height=110, help=HELP, placeholder=FORMATS)
        st.form_submit_button("Use the pasted rows", icon=":material/check:", on_click=_use_pasted)
    if line := st.session_state.pop(FAULT, None):
        with where:
            show_error(line)


def draw_fault(details: object) -> None:
    """Draws the remedy for questions that cannot be used: all faults of the file as a table; or takes as many examples
    as there are rows for, and runs the page again."""
    if isinstance(details, tuple) and all(isinstance(fault, RowFault) for fault in details):
        rows = [{"row": fault.row, "what": fault.what, "value": fault.value} for fault in details]
        text = st.column_config.TextColumn
        config = {"row": st.column_config.NumberColumn("Row", width="small")}
        config |= {"what": text("Problem", width="large"), "value": text("Value", width="medium")}
        st.dataframe(rows, hide_index=True, column_config=config, alt=f"{len(rows)} faults by row")
        mark("rows", "wrong", faults=len(rows))
    if isinstance(details, TooFewExamples):
        fewer = max(n for n in SHOT_COUNTS if n < max(1, min(details.n_rows, details.shots)))
        said = f"{details.n_rows} rows can be examples: the prompt has {fewer} instead of {details.shots}."
        st.session_state[FEWER] = fewer, said
        st.rerun()  # the whole page, as this may be drawn in a part that runs alone


def draw_remarks(rendered: RenderedQuestions) -> None:
    """Draws what a user should know of how the own file was read."""
    for line in rendered.own.remarks if rendered.own is not None else ():
        st.info(plain(line), icon=":material/info:")


def take_fewer_examples() -> None:
    """Sets the number of examples to one that a file has rows for, before its control is drawn, and says so."""
    if (found := st.session_state.pop(FEWER, None)) is not None:
        write("shots", found[0])
        st.toast(found[1], icon=":material/info:")


def keep_file(name: str, content: bytes, folder: Path) -> Path:
    """Writes an uploaded file into `folder`, in a subfolder named by its content; returns its path. HeadroomError if it
    cannot be written."""
    suffix = next((each for each in OWN_SUFFIXES if name.endswith(each)), OWN)
    stem = Path(name).name.removesuffix(suffix)[:60]
    stem = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in stem).strip(".")
    digest = hashlib.blake2b(content, digest_size=6).hexdigest()
    file = folder / digest / f"{stem or 'questions'}{suffix}"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content)
    except OSError as error:
        line = f"cannot keep {name} in {folder} ({error.strerror}); save it yourself and give its path"
        raise HeadroomError(line) from error
    return file


def _use(file: str) -> None:
    set_study(task=file)
    st.session_state[MENU] = False


def _use_path() -> None:
    typed = st.session_state[PATH].strip()
    if typed.endswith(OWN_SUFFIXES):
        _use(typed)
    elif typed:
        ends = " or ".join(OWN_SUFFIXES)
        st.session_state[FAULT] = f"{typed!r} does not end with {ends}; give a file of questions or word pairs"


def _use_file() -> None:
    if (given := st.session_state[UPLOADED]) is not None:
        _keep_and_use(given.name, given.getvalue())


def _use_pasted() -> None:
    """Uses pasted rows: a line of JSON for each question, or else word pairs."""
    if text := st.session_state[PASTED].lstrip("\ufeff").strip():
        name = f"pasted{OWN if text.startswith('{') else OWN_PAIRS}"
        _keep_and_use(name, f"{text}\n".encode())


def _keep_and_use(name: str, content: bytes) -> None:
    try:
        _use(str(keep_file(name, content, store().directory / FOLDER)))
    except HeadroomError as error:
        st.session_state[FAULT] = str(error)
