"""The second model, which the sidebar's is compared with: one control and one query parameter for all screens that
compare two models. Nothing is read or computed for it while it is empty.
"""

from typing import Any

import streamlit as st

from engine.errors import HeadroomError
from engine.models.loading import PRECISIONS, LoadSpec
from pages.ui.controls.controls import with_own
from pages.ui.page.runtime import show_error

KEY = "against"
LABEL, NONE = "Compare with", "none"
HELP = (
    "A second model next to this one on Prune and Text, on the same questions: another "
    "precision (`fp32`), revision or snapshot (`@step512`), or another model (a Hub id or a folder, optionally with "
    "its precision: `demo in fp32`). × removes it."
)
ELSEWHERE = "Prune and Text compare two models; this screen shows one."


def draw_against(spec: LoadSpec, models: list[str], here: bool) -> None:
    """Draws the control; `here`: whether the open screen compares two models. Where it does not, only a chosen one."""
    if not (here or typed() or st.query_params.get(KEY)):
        return
    options = [each for each in PRECISIONS if each != spec.precision]
    options += [each for each in models if each != spec.model]
    look: dict[str, Any] = {"index": None, "accept_new_options": True, "disabled": not here, "bind": "query-params"}
    st.selectbox(LABEL, with_own(options, KEY), key=KEY, placeholder=NONE, help=HELP if here else ELSEWHERE, **look)
    if here and typed():
        try:
            spec.compared_with(typed())
        except HeadroomError as error:
            show_error(f"{LABEL}: {error}")


def typed() -> str:
    """Returns the text typed for the second model, or ""."""
    return str(st.session_state.get(KEY) or "").strip()


def compared(spec: LoadSpec) -> LoadSpec | None:
    """Returns the second model of a comparison; None if there is none, or if the control reports an error."""
    if not typed():
        return None
    try:
        return spec.compared_with(typed())
    except HeadroomError:
        return None
