"""The text of a screen: a built-in passage, a remembered one, or one the user has just pasted or loaded.

A user's text is in the session, and offered on every screen; under a name it is in the result store on this computer.
The address holds the name of a text, and all of an unnamed one that is short.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import streamlit as st

from engine.demo import Landmark, Passage, passages
from engine.errors import HeadroomError
from engine.texts import passages as kept
from pages.ui.page.runtime import show_error, store
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import plain
from pages.ui.page.widget_writes import hold, write

OWN, FAULT, NOTE = "own_text", "own_text_fault", "own_text_note"
PRIVATE = "It never leaves this computer."
KEY, LINKED = "text_text", "text_own"  # query parameters: the name of the text, and a short one of the user's own
PASTED, LOADED, NAME = (f"{KEY}_{of}" for of in ("pasted", "loaded", "name"))  # controls
SHOWN = "own_text_shown"  # in the session: how often a text of the user was chosen
FIRST = "Names that return"  # the text that the screen opens with
TITLE_PX = 215  # pixels: of the longest title
MAX_LINKED = 1500  # characters of an unnamed text that the address holds
PAPER = "The passage of the paper"
PAPER_BEGINS = "Mr. and Mrs. Dursley, of number four, Privet Drive"
PASTE_HELP = (
    f"A few sentences, at most 1 MB. {PRIVATE}\n\nThe passage that Olsson et al. show in *In-context Learning and "
    "Induction Heads* is the beginning of *Harry Potter and the Philosopher's Stone*, which is under copyright: paste "
    f"it from your own copy, from “{PAPER_BEGINS}” on, and it is kept under its own name."
)
PAPER_SAYS = (
    "Olsson et al.: with induction heads, names that return are predicted better, such as “Mr. and Mrs. Dursley”; a "
    "familiar beginning that goes on differently is predicted worse, such as “Mrs. Potter” after “Mrs. Dursley”."
)


@dataclass(frozen=True)
class Chosen:
    """A text and its name; `passage` is the built-in passage, if it is one."""

    name: str
    text: str
    passage: Passage | None = None

    @property
    def named(self) -> dict[str, Any]:
        """Returns the field of a request that names this text; a user's own has to be saved in a file first."""
        return {"passage": self.name} if self.passage else {"text": "text.txt"}

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """Returns the places worth a look."""
        return self.passage.landmarks if self.passage else ()


def choose_text(where: DeltaGenerator) -> Chosen | None:
    """Draws the choice of a text, bound to the address; returns the text with its name.

    None only if a remembered text has just been deleted in another tab.
    """
    _take_linked()
    built_in, names, own = [passage.title for passage in passages(long=True)], kept.names(store()), _own_text()
    options = [*built_in, *names, *([own.name] if own else [])]
    asked = st.query_params.get(KEY) if KEY not in st.session_state else None
    if asked and asked not in options:
        st.session_state[FAULT] = f"no text named {asked!r} is kept on this computer; choose another or paste it again"
    first = options.index(FIRST)
    hold(KEY)
    name = where.selectbox("Text", options, index=first, key=KEY, bind="query-params", width=TITLE_PX)
    with where.popover(
        "Your own text",
        key=f"{KEY}_menu_{st.session_state.get(SHOWN, 0)}",
        on_change="rerun",
        icon=":material/edit_note:",
    ):
        _draw_own(str(name), own, names)
    _link(str(name), own)
    if fault := st.session_state.pop(FAULT, None):
        show_error(fault)
    if note := st.session_state.pop(NOTE, None):
        st.caption(plain(note))
    return find_text(str(name))


def find_text(name: str) -> Chosen | None:
    """Returns the text of that name, or None."""
    own, built_in = _own_text(), {passage.title: passage for passage in passages(long=True)}
    if own and name == own.name:
        return own
    if name in built_in:
        return Chosen(name, built_in[name].text, built_in[name])
    text = kept.recall(name, store())
    return None if text is None else Chosen(name, text)


def _own_text() -> Chosen | None:
    return st.session_state.get(OWN)


def _take_linked() -> None:
    """Makes the text that the address holds the user's own; to be called before the choice of a text is drawn."""
    name = st.query_params.get(KEY)
    text = st.query_params.get(LINKED) if LINKED not in st.session_state else None
    if text and name and find_text(name) is None:
        with suppress(HeadroomError):  # as without it: no text has this name
            st.session_state[OWN] = Chosen(name, kept.checked(text))


def _link(name: str, own: Chosen | None) -> None:
    """Keeps the user's own text in the address while it is chosen, if it is short."""
    is_linked = own is not None and own.name == name and len(own.text) <= MAX_LINKED
    st.session_state[LINKED] = own.text if own is not None and is_linked else ""
    with st.container(key=f"hidden {LINKED}"):
        st.text_area("Text in the address", key=LINKED, bind="query-params")


def _draw_own(name: str, own: Chosen | None, names: list[str]) -> None:
    """Draws the controls that paste or load a text, and remember or forget it."""
    with st.form(f"{KEY}_form", border=False):  # of a form, Ctrl+Enter in the field is the button
        st.text_area("Paste a text", key=PASTED, height=140, help=PASTE_HELP)
        help = "Measures it. Ctrl+Enter in the field does the same."
        st.form_submit_button(
            "Use the pasted text", help=help, on_click=_guarded, args=(_use_pasted,), icon=":material/check:"
        )
    st.file_uploader(
        "Or load a text file",
        ["txt", "md"],
        key=LOADED,
        max_upload_size=2,
        on_change=_guarded,
        args=(_use_loaded,),
        help=f"At most 1 MB, in any encoding. {PRIVATE}",
    )
    if own and own.name == name:
        st.text_input("Name of this text", key=NAME, help=f"Kept in the result store. {PRIVATE}")
        help = f"Up to {MAX_LINKED:,} characters, the link to this view holds all of the text; else only its name."
        st.button("Remember", help=help, on_click=_guarded, args=(_remember,), icon=":material/bookmark_add:")
        if len(own.text) > MAX_LINKED:
            st.caption("Too long for the address: without a name, it is gone after a reload.", help=PRIVATE)
    elif name in names:
        st.button(
            "Forget this text",
            help=f"Deletes {plain(name)} from the result store.",
            on_click=_forget,
            args=(name,),
            icon=":material/delete:",
        )


def _guarded(change: Callable[..., None], *arguments: object) -> None:
    """Runs a change that the user asked for; its error is shown by the next run."""
    try:
        change(*arguments)
    except HeadroomError as error:
        st.session_state[FAULT] = str(error)


def show_text(name: str, text: str) -> str:
    """Makes a text the user's own, and chooses it; returns its name, which no other text has."""
    taken = {*_titles(), *kept.names(store())}
    name = "".join(letter for letter in name if letter.isprintable())[: kept.MAX_NAME].strip() or "A text"
    while name in taken:
        name += " (own)"
    st.session_state[OWN] = Chosen(name, text)
    _choose(name)
    return name


def _choose(name: str) -> None:
    write(KEY, name)
    # a new popover, which is closed: a browser that has not closed the last one yet would open it again
    st.session_state[SHOWN] = st.session_state.get(SHOWN, 0) + 1


def _keep(name: str, text: str) -> None:
    """Keeps a text on this computer, and chooses it."""
    if not kept.remember(name, text, store()):
        st.session_state[FAULT] = f"{name!r} is kept until the app ends: the result store cannot be written"
    _choose(name)


def open_text(name: str, text: str) -> None:
    """Opens the Text screen with a text."""
    st.switch_page("pages/text.py", query_params={KEY: show_text(name, text)})


def open_at_head(name: str) -> None:
    """Opens the Text screen, shaded by the attention of this head."""
    query = {"text_head": name, "text_shade": "Attention"}
    for key, value in query.items():
        write(key, value)
    st.switch_page("pages/text.py", query_params=query)


def _use_pasted() -> None:
    text = kept.checked(st.session_state[PASTED], "the pasted text")
    if text.lstrip().startswith(PAPER_BEGINS):
        _keep(PAPER, text)
    else:
        show_text("Pasted text", text)


def _use_loaded() -> None:
    if file := st.session_state[LOADED]:
        text, encoding = kept.guess_decoded(file.getvalue(), file.name)
        show_text(file.name.removesuffix(".txt").removesuffix(".md"), text)
        if encoding:
            st.session_state[NOTE] = f"{file.name} is not UTF-8 and was read as {encoding}, a guess."


def _titles() -> list[str]:
    """Returns the titles of all built-in passages."""
    return [passage.title for passage in passages(long=True)]


def _remember() -> None:
    own, name = _own_text(), st.session_state[NAME].strip()
    if name in _titles():
        raise HeadroomError(f"{name!r} is the title of a built-in passage; choose another name")
    if own is not None:
        _keep(name, own.text)
        del st.session_state[OWN]


def _forget(name: str) -> None:
    kept.forget(name, store())
    write(KEY, passages()[0].title)
