"""Marks: invisible elements that report the state of the page, so that tests do not depend on its wording.

A test waits for `[data-mark="figure"][data-state="measured"][data-questions="32"]`, never for a sentence.
"""

from html import escape

import streamlit as st

from engine.models.masks import Mask
from pages.ui.page.streamlit_internals import DeltaGenerator


def mark(name: str, state: str, at: DeltaGenerator | None = None, /, **facts: object) -> None:
    """Draws a mark after the element it describes, here or `at` a place: its `state`, and facts such as `questions=32`.
    It takes up no space (streamlit_internals.css)."""
    attributes = {"mark": name, "state": state, **facts}
    written = (f'data-{key}="{escape(str(value))}"' for key, value in attributes.items())
    (st if at is None else at).html(f"<span {' '.join(written)}></span>")


def counts(mask: Mask | None) -> dict[str, int | str]:
    """Returns how many heads and FFNs a mask prunes, as facts; "" while the mask is unknown."""
    if mask is None:
        return {"heads": "", "ffns": ""}
    return {"heads": mask.n_heads_pruned, "ffns": mask.n_ffns_pruned}
