"""The mask is shared by all screens: when one of them sets it, the others open with it in their mask field.

So it is in the address of each, and each can set its own, which the others then open with.
"""

import streamlit as st

from engine.models.masks import Mask
from engine.shapes import ModelShape
from pages.ui.controls.study import current, restore
from pages.ui.controls.study_bar import draw_pruned
from pages.ui.page.defaults import LEVELS
from pages.ui.page.presentation import PRUNED_BY, presenting
from pages.ui.page.screens import TITLES
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import mask_counts
from pages.ui.page.widget_writes import write

SCREENS = {key: TITLES[key] for key in ("prune", "induction")}
HELP = "Shared by all screens that prune: the others open with the mask set here."
RESTORE_HELP = "Restores all of it: levels at 0, nothing named."


def hand_on(screen: str, shape: ModelShape, mask: Mask | None, where: DeltaGenerator, is_default: bool = False) -> None:
    """Notes the mask of this screen (None: not known yet) for the others, and draws it as a badge with a button that
    clears it. A screen's default mask is not handed on before it is changed; `is_default`: it is one, though the
    address holds it."""
    if mask is None:
        return
    seen = st.session_state.setdefault("pruned on", {})
    prefix = "" if screen == "prune" else f"{screen}_"
    said = any(f"{prefix}{part}" in st.query_params for part in ("heads", "ffns", "layers", "mask"))
    is_set = (screen in seen or said) and not is_default
    if seen.get(screen) != mask and is_set and not presenting():  # a slide follows its address alone
        st.session_state[PRUNED_BY] = screen
        for other in SCREENS.keys() - {screen}:
            seen[other] = mask
            set_pruned(other, mask.text())
    seen[screen] = mask
    if screen == "prune":
        draw_pruned(where, shape, mask)
    elif not mask.is_full:
        with where.container(horizontal=True, vertical_alignment="center", gap="xxsmall"):
            by = f", from {SCREENS[other]}" if (other := set_elsewhere(screen)) else ""
            st.badge(
                f"Pruned: {mask_counts(shape, mask)}{by}", icon=":material/content_cut:", color="orange", help=HELP
            )
            about = {"key": f"{screen} restore", "on_click": set_pruned, "args": (screen, "")}
            st.button("Restore all", type="tertiary", help=RESTORE_HELP, **about)


def set_elsewhere(screen: str) -> str:
    """Returns the key of the other screen that set the mask of this one, or ""."""
    by = st.session_state.get(PRUNED_BY, screen)
    return by if by != screen else ""


def set_pruned(screen: str, text: str) -> None:
    """Sets a screen's controls, before they are drawn, to a mask and levels of 0."""
    if screen == "prune":
        restore(text)
        return
    write(f"{screen}_mask", text)


def restore_all() -> None:
    """Sets all screens to levels of 0 and nothing named, if anything is set; their defaults stay."""
    state = st.session_state
    state.pop("pruned on", None)
    if state.pop(PRUNED_BY, None) or any(current(part) for part in (*LEVELS, "mask")):
        for screen in SCREENS:
            set_pruned(screen, "")
