"""The second model of a comparison, on the screens that set two side by side."""

import streamlit as st

from engine.models.subject import Subject
from pages.ui.shared.against import compared
from pages.ui.shared.runtime import lab
from pages.ui.shared.sidebar import Setup, look_for_model
from pages.ui.shared.tables import plain


def second_model(setup: Setup) -> Subject | None:
    """The model that the sidebar's is compared with; None where there is none, or until its files are here and read,
    which is said in its place: the page goes on. Both may then be in memory at once, where they fit."""
    spec, models = compared(setup.spec), lab().models
    pair = frozenset() if spec is None else frozenset({setup.spec, spec})
    if models.pair != pair:
        models.pair = pair
    return None if spec is None else look_for_model(setup, spec)


def heading(first: Subject, second: Subject, help: str) -> None:
    """Draws the heading of a section that compares them."""
    st.subheader(f"{plain(first.spec.in_words)} and {plain(second.spec.in_words)}", help=help, divider="gray")


def shapes_in_words(first: Subject, second: Subject) -> str:
    """Why heads of the two cannot be paired; "" where they can."""
    a, b = ((each.shape.n_layers, each.shape.n_heads) for each in (first, second))
    if a == b:
        return ""
    told = (f"{plain(each.spec.in_words)} has {n[0]} layers of {n[1]} heads" for each, n in ((first, a), (second, b)))
    return f"{', '.join(told)}: no head of one answers to a head of the other."
