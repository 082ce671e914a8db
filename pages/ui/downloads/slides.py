"""Slides: what screens showed when they were added, kept in the result store. No streamlit here."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from cache import Store
from cache.typed_json import InvalidFile, decode_json

KEY = "slides"
MOST = 100


@dataclass(frozen=True)
class Slide:
    """A slide of the talk.

    `title`: its finding
    `about`: model, measurement, and the day it was added
    `link`: its screen with all controls, such as "/text?text_text=The+ferry"
    `charts`: in Vega-Lite, as JSON
    `table`: in place of charts, the titles of its columns, and its first rows
    """

    title: str
    about: str
    link: str
    charts: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()


def saved(store: Store) -> tuple[Slide, ...]:
    """Returns the slides, in the order in which they were added."""
    raw = store.get(KEY)
    try:
        return () if raw is None else decode_json(raw, tuple[Slide, ...], KEY)
    except InvalidFile:
        return ()  # written by another version


def are_saved(store: Store) -> bool:
    """Returns whether there is a slide, without reading any: each run of a page asks."""
    return store.has(KEY)


def save(slides: Sequence[Slide], store: Store) -> bool:
    """Saves these slides in this order; returns False if they are in memory only."""
    if not slides:
        store.delete(KEY)
        return True
    return store.put(KEY, json.dumps([asdict(slide) for slide in slides]).encode())


def remove(number: object, link: object, store: Store) -> None:
    """Removes the slide of this number, from 0, and link, as a browser names it; does nothing if the list has changed
    since."""
    known = saved(store)
    if isinstance(number, int) and [each.link for each in known[number : number + 1]] == [link]:
        save((*known[:number], *known[number + 1 :]), store)
