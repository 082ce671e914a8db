"""The second model of a comparison, on the screens that compare two."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from engine.models.session import Target
from engine.receipts import Measurements
from engine.requests import Request
from pages.ui.controls.selection import compared
from pages.ui.controls.sidebar import Setup, look_for_model
from pages.ui.downloads.origin import Origin, of_second
from pages.ui.page.marks import mark
from pages.ui.page.tables import plain


def with_second(of: Origin, second: Target | None, shows: Measurements, requests: Sequence[Request] = ()) -> Origin:
    """Returns the screen's origin with the second model, if there is one: what it `shows`, and the
    `requests` of both, by default the screen's own once more for the second."""
    if second is None:
        return of
    asked = requests or [*of.requests, *(of_second(each, second) for each in of.requests)]
    about, measurements = f"{of.about} · compared with {second.spec.in_words}", {**of.measurements, **shows}
    return replace(of, requests=[*asked], measurements=measurements, about=about)


def second_model(setup: Setup) -> Target | None:
    """Returns the model that the sidebar's is compared with. None if none is chosen, or until its files are here and
    read, which is reported in its place while the page continues."""
    spec = compared(setup.spec)
    return None if spec is None else look_for_model(setup, spec)


def heading(first: Target, second: Target, help: str) -> None:
    """Draws the heading of a section that compares the two."""
    st.subheader(f"{plain(first.spec.in_words)} and {plain(second.spec.in_words)}", help=help, divider="gray")
    mark("comparison", "shown", first=first.spec.in_words, second=second.spec.in_words)


def shapes_in_words(first: Target, second: Target) -> str:
    """Returns why heads of the two cannot be paired; "" if they can."""
    a, b = ((each.shape.n_layers, each.shape.n_heads) for each in (first, second))
    if a == b:
        return ""
    shapes = (f"{plain(each.spec.in_words)} has {n[0]} layers of {n[1]} heads" for each, n in ((first, a), (second, b)))
    return f"{', '.join(shapes)}: no head of one answers to a head of the other."
