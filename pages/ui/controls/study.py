"""The study: what is measured on all screens, and with what pruned. One value, read from the controls of the bar."""

from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from engine.importance.orders import Axis, Pruning, Ranking
from engine.models.loading import LoadSpec
from engine.models.masks import parse_edits
from engine.models.session import Target
from engine.questions.chats import chat_template
from engine.questions.rendering import TaskSpec
from pages.ui.page.defaults import ORDER, RANKING_QUESTIONS
from pages.ui.page.streamlit_internals import write_param
from pages.ui.page.widget_writes import HELD_S, hold, write

TO_SET = "study to set"  # in the session: values that the next run writes into the controls
STUDY = "study"  # in the session: that of this run
BOS = {"model default": None, "on": True, "off": False}  # the first is the default


@dataclass(frozen=True)
class Study:
    """The settings of the bar."""

    spec: LoadSpec  # the model
    second: LoadSpec | None  # the model that it is compared with
    bos: bool | None  # None: the default of the model's tokenizer
    data_dir: str | None  # the folder of task data
    task: TaskSpec  # the chosen task, as typed
    limit: int  # the most questions asked
    axis: Axis  # whose slider is drawn, and whose levels run along the curve
    heads: int  # percent pruned
    ffns: int  # percent pruned
    layers: int  # percent dropped
    ranking: str  # the pruning order of heads and FFNs; "" until a screen has set it
    layers_by: str  # the pruning order of layers
    typed: str  # the text of a mask, pruned as well
    is_chat: bool  # prompts are chats

    def percent(self, axis: Axis) -> int:
        """Returns the level of an axis, in percent."""
        return {"heads": self.heads, "ffns": self.ffns, "layers": self.layers}[axis]

    def asked(self, target: Target) -> TaskSpec:
        """Returns the task as this model is asked: as typed, or as chats."""
        return replace(self.task, chat=chat_template(target.identity) if self.is_chat else None)

    def pruning(self, target: Target) -> Pruning:
        """Returns the pruning of this model; UsageError if the mask cannot be read."""
        layers_by = self.layers_by if self.layers else "influence"  # without an effect, the same pruning
        ranking = Ranking(self.ranking or ORDER, n_questions=RANKING_QUESTIONS, layers_by=layers_by)
        heads, ffns, layers = (10 * level for level in (self.heads, self.ffns, self.layers))
        return Pruning(self.asked(target), ranking, heads, ffns, parse_edits(self.typed, target.shape), layers)


def drawn_axis() -> Axis:
    """Returns the axis whose slider is drawn."""
    return st.session_state.get("axis") or "heads"


def study() -> Study:
    """Returns the study of this run, as the bar is drawn before each screen; in a callback, that of the run before."""
    return st.session_state[STUDY]


def set_study(held_s: float = HELD_S, **values: Any) -> None:
    """Sets controls of the bar, by their keys, in the next run; the caller starts it, unless it is a callback. A
    browser that still reports their previous values is corrected for `held_s` seconds."""
    st.session_state[TO_SET] = st.session_state.get(TO_SET, {}) | {key: (each, held_s) for key, each in values.items()}


def restore(text: str = "") -> None:
    """Sets all levels to 0, and the mask to this text."""
    set_study(heads=0, ffns=0, layers=0, mask=text)


def current(key: str) -> Any:
    """Returns the value of a control of the bar, by its key: as it is, or as the next run sets it."""
    return st.session_state.get(TO_SET, {}).get(key, (st.session_state.get(key),))[0]


def is_to_set() -> bool:
    """Returns whether the next run sets a control of the bar."""
    return TO_SET in st.session_state


def apply_settings() -> None:
    """Writes the values of `set_study` into the controls, before these are drawn. They are forgotten last: a request
    may end the run at any use of the session state, and the next run writes them again."""
    for key, (value, held_s) in st.session_state.get(TO_SET, {}).items():
        hold(key)
        write(key, value, held_s)
        if key == "order":  # before the browser has drawn the list once, Streamlit does not write it
            write_param(key, value)
    st.session_state.pop(TO_SET, None)
