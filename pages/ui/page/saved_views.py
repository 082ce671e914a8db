"""Saved views: links to screens with a name, kept in the result store. No streamlit here.

A view is the part of an address after the host: a screen's path and the values of its controls.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from urllib.parse import urlencode

from cache import Store
from cache.typed_json import InvalidFile, decode_json

KEY = "views/saved"
MAX_VIEWS, MAX_NAME = 200, 80
MAX_PROPOSED = MAX_NAME - 4  # characters of a proposed name, before the number of one that is taken
PRESENT = "present"  # the parameter of the address that shows a screen as a slide


@dataclass(frozen=True)
class SavedView:
    """A name, and a link such as "/text?text_text=The+ferry"."""

    name: str
    link: str


def saved(store: Store) -> tuple[SavedView, ...]:
    """Returns the saved views, in order."""
    raw = store.get(KEY)
    try:
        return () if raw is None else decode_json(raw, tuple[SavedView, ...], KEY)
    except InvalidFile:
        return ()  # written by another version


def save(views: Sequence[SavedView], store: Store) -> bool:
    """Saves these views in this order; returns False if they are in memory only."""
    return store.put(KEY, json.dumps([asdict(view) for view in views]).encode())


def printable(name: str, most: int = MAX_NAME) -> str:
    """Returns a name as it can be shown."""
    return "".join(letter for letter in name.strip() if letter.isprintable())[:most]


def free_name(title: str, model: str, views: Sequence[SavedView]) -> str:
    """Returns a name for a view that none of the `views` has: this `title`, with the model unless that is the demo."""
    named = title if model in ("", "demo") else f"{title}, {model.rstrip('/').rpartition('/')[2]}"
    named, taken = printable(named, MAX_PROPOSED), {view.name for view in views}
    return next(name for n in count(1) if (name := named if n == 1 else f"{named} {n}") not in taken)


def link_of(path: str, parameters: Mapping[str, Sequence[str]]) -> str:
    """Returns the link to a screen with these values of its controls, several for a control of several options."""
    kept = {name: [value for value in values if value] for name, values in parameters.items() if name != PRESENT}
    query = urlencode({name: values for name, values in kept.items() if values}, doseq=True)
    return (path or "/") + (f"?{query}" if query else "")
