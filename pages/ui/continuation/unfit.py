"""Two prompts that cannot be patched into each other: what they need, and pairs that work."""

import re
from collections.abc import Mapping
from typing import Any

import streamlit as st

from engine.demo import OTHER_PROMPT, PROMPT
from engine.heads.patching import PatchMap, PromptLengths
from pages.ui.page.marks import mark
from pages.ui.page.presentation import presenting
from pages.ui.page.tables import plain
from pages.ui.page.widget_writes import write
from pages.ui.page.work import Work

OTHER_KEY = "continue_patch_other"
KEYS = "continue_prompt", OTHER_KEY
NEEDS = "It takes a second prompt with as many tokens that ends in another answer, such as one with two names swapped."
EXAMPLE_HELP = "Replaces both prompts: they differ in two names, and end in one of them."
SWAP_HELP = "Sets the other prompt to this one with the two names swapped."
NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+\b")  # not the first word of a sentence


def is_unfit(work: Work[PatchMap]) -> bool:
    """Returns whether the work ended because its two prompts cannot be patched."""
    job = work.now()
    return job is not None and isinstance(job.details, PromptLengths)


def draw_unfit(work: Work[PatchMap], prompt: str) -> None:
    """Draws why this prompt and the other of the work do not fit, and the buttons that set prompts that do."""
    job = work.now()
    assert job is not None and isinstance(job.details, PromptLengths)
    st.info(f"{describe(job.details, job.error or '')} {NEEDS}", icon=":material/swap_horiz:")
    mark("unfit prompts", "drawn", a=job.details.a, b=job.details.b)
    if presenting():
        return
    with st.container(horizontal=True):
        if swapped := swap_names(prompt):
            names, other = swapped
            label, values = f"Swap {plain(names[0])} and {plain(names[1])}", {OTHER_KEY: other}
            st.button(label, icon=":material/swap_calls:", help=SWAP_HELP, on_click=_set, args=(values,))
        values = dict(zip(KEYS, (PROMPT, OTHER_PROMPT), strict=True))
        look: dict[str, Any] = {"icon": ":material/lightbulb:", "help": EXAMPLE_HELP}
        st.button("Use the example pair", **look, on_click=_set, args=(values,))


def describe(lengths: PromptLengths, error: str) -> str:
    """Returns why the prompts do not fit."""
    if lengths.a != lengths.b:
        return f"This prompt has {lengths.a} tokens, the other {lengths.b}."
    why, _, _ = plain(error).partition(";")
    return f"{why[:1].upper()}{why[1:]}."


def swap_names(prompt: str) -> tuple[tuple[str, str], str] | None:
    """Returns the first two names inside the prompt's sentences, and the prompt with them swapped; None without two."""
    names = list(dict.fromkeys(NAME.findall(prompt)))[:2]
    if len(names) < 2:
        return None
    first, second = names
    swapped = re.sub(rf"\b({first}|{second})\b", lambda found: second if found[0] == first else first, prompt)
    return (first, second), swapped


def _set(values: Mapping[str, str]) -> None:
    for key, value in values.items():
        write(key, value)
