"""Saved views: links to screens with a name, in an order, kept in the result store. No streamlit here.

A view is the part of an address after the host: a screen's path and the values of its controls.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Literal
from urllib.parse import parse_qs, urlencode, urlsplit

from cache import Store
from cache.typed_json import InvalidFile, decode_json
from engine.errors import HeadroomError

KEY, FORM = "views/saved", "headroom views"
MAX_VIEWS, MAX_NAME, MAX_LINK, MAX_BYTES = 200, 80, 20_000, 10_000_000
MAX_PROPOSED = MAX_NAME - 4  # characters of a proposed name, before the number of one that is taken
PRESENT = "present"  # the parameter of the address that shows a screen as a slide


@dataclass(frozen=True)
class SavedView:
    """A name, and a link such as "/passage?passage_text=The+ferry"."""

    name: str
    link: str


def saved(store: Store) -> tuple[SavedView, ...]:
    """Returns the saved views, in order."""
    raw = store.get(KEY)
    try:
        return () if raw is None else read(raw)
    except HeadroomError:
        return ()  # written by another version


def save(views: Sequence[SavedView], store: Store) -> bool:
    """Saves these views in this order; returns False if they are in memory only."""
    return store.put(KEY, written(views))


def written(views: Sequence[SavedView]) -> bytes:
    """Returns the views as a file."""
    return json.dumps({"form": FORM, "views": [asdict(view) for view in views]}, indent=1).encode()


def read(raw: bytes) -> tuple[SavedView, ...]:
    """Returns the views of such a file; HeadroomError if it is not one."""
    try:
        if len(raw) > MAX_BYTES:
            raise InvalidFile(f"it has {len(raw):,} bytes, more than {MAX_BYTES:,}")
        views = decode_json(raw, _ViewsFile, "views.json").views
    except InvalidFile as error:
        line = "this file holds no saved views; give one that was saved here as views.json"
        raise HeadroomError(f"{line} ({error})") from error
    if len(views) > MAX_VIEWS:
        raise HeadroomError(f"this file holds {len(views):,} saved views, more than {MAX_VIEWS}; give one saved here")
    return tuple(checked(view) for view in views)


@dataclass(frozen=True)
class _ViewsFile:
    form: Literal["headroom views"]
    views: tuple[SavedView, ...]


def free_name(title: str, model: str, views: Sequence[SavedView]) -> str:
    """Returns a name for a view that none of the `views` has: this `title`, with the model unless that is the demo."""
    named = title if model in ("", "demo") else f"{title}, {model.rstrip('/').rpartition('/')[2]}"
    named = "".join(letter for letter in named if letter.isprintable())[:MAX_PROPOSED]
    taken = {view.name for view in views}
    return next(name for n in count(1) if (name := named if n == 1 else f"{named} {n}") not in taken)


def checked(view: SavedView) -> SavedView:
    """Returns the view; HeadroomError if its name cannot be shown or its link is not to a screen of this app."""
    name = view.name.strip()
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise HeadroomError(f"a name of {len(name)} characters cannot be kept; use 1 to {MAX_NAME} printable ones")
    try:
        parts = urlsplit(view.link)
    except ValueError:  # such as [ without ] in a host's name
        parts = urlsplit("//")
    plain = parts.path.startswith("/") and parts.path[1:].replace("_", "").isalnum() or parts.path == "/"
    if parts.scheme or parts.netloc or not plain or len(view.link) > MAX_LINK:
        line = "is not a link to a screen of this app; it must begin with / and a screen's name"
        raise HeadroomError(f"{view.link[:60]!r} {line}")
    return SavedView(name, link_of(parts.path, parse_qs(parts.query)))


def link_of(path: str, parameters: Mapping[str, Sequence[str]]) -> str:
    """Returns the link to a screen with these values of its controls, several for a control of several options."""
    kept = {name: [value for value in values if value] for name, values in parameters.items() if name != PRESENT}
    query = urlencode({name: values for name, values in kept.items() if values}, doseq=True)
    return (path or "/") + (f"?{query}" if query else "")


def moved(views: Sequence[SavedView], at: int, by: int) -> tuple[SavedView, ...]:
    """Returns the views with one of them moved by `by` places, at most to an end."""
    rest = [view for number, view in enumerate(views) if number != at]
    rest.insert(max(0, min(len(rest), at + by)), views[at])
    return tuple(rest)
