"""Controls that several screens share, bound to the address; `prefix` keeps the screens' parameters apart."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import streamlit as st

from engine.importance.criteria import CRITERIA
from engine.importance.rankings_of import OF_ONE_TASK
from engine.importance.rules import RULES
from engine.models.masks import KEEP
from engine.shapes import ModelShape
from pages.ui.page.address import current_value, flag, one_among, put_right
from pages.ui.page.defaults import ORDER, SHOT_COUNTS, SHOTS
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.widget_writes import follow_default, hold

T = TypeVar("T")
MOST_IN_SHORT = 16  # characters of a mask next to a level
MANY = "others"
EXAMPLE = "example of a mask"  # set by the sidebar, which knows the model
_RULES = {name: RULES[name].help for name in OF_ONE_TASK}
RANKING_HELP = (
    "Least first, from this task's train split: "
    + " ".join(f"`{name}`: {words}." for name, words in _RULES.items() if name in CRITERIA)
    + " Rules, by what they prune first: "
    + " ".join(f"`{name}`: {words}." for name, words in _RULES.items() if name not in CRITERIA)
)
MASK_HELP = (
    "`L3H5` is head 5 of layer 3, `L4H*` all heads of layer 4, `F7` the FFN of layer 7, `F2-5` those of four layers, "
    "`B5` all of layer 5. "
    "They are pruned on top of the levels. Components named after the word `keep` are never pruned: "
    "`keep L1H0`."
)
CHAT_HELP = (
    "As a chat: with the chat template of this model, as a message of the user that the assistant answers. For a task, "
    "its examples are earlier messages and answers."
)


def one_of(where: DeltaGenerator, label: str, named: Mapping[T, str], key: str, help: str | None, **more: Any) -> T:
    """Draws a choice of one of the keys of `named` (value: label), bound to the address; the first is the default."""
    look: dict[str, Any] = {"default": next(iter(named)), "required": True, "bind": "query-params", **more}
    if look["bind"]:
        put_right(key, label, one_among(named.values()))
    return where.segmented_control(label, list(named), format_func=named.__getitem__, key=key, help=help, **look)


def one_listed(where: DeltaGenerator, label: str, options: Collection[str], key: str, **more: Any) -> str:
    """Draws a list to choose one of the options from, bound to the address; the first is the default, or `index`
    (None: nothing, which gives None)."""
    index = more.get("index", 0)
    follow_default(key, None if index is None else list(options)[index])
    put_right(key, label, one_among(options))
    return where.selectbox(label, options, key=key, bind="query-params", filter_mode="contains", **more)


def choose_shots(where: DeltaGenerator, key: str, help: str | None, **more: Any) -> int:
    """Draws the choice of how many examples stand in the prompt."""
    counts = {count: str(count) for count in SHOT_COUNTS}
    return one_of(where, "Examples in the prompt", counts, key, help, default=SHOTS, **more)


def folded(
    label: str, key: str, draw: Callable[[], T], in_address: bool = False, holds: Collection[str] = ()
) -> T | None:
    """Draws a folded part of the page; once it is unfolded, `draw` draws its inside. What that gives, None before.

    An address with a value for one of the controls that it `holds` opens the page with the part unfolded.
    """
    if in_address:
        put_right(key, label, flag)
    if key not in st.session_state and key not in st.query_params and any(each in st.query_params for each in holds):
        st.session_state[key] = True
    at = st.expander(label, key=key, on_change="rerun", bind="query-params" if in_address else None)
    if not at.open:
        return None
    with at:
        return draw()


def settings_menu(where: DeltaGenerator, prefix: str) -> DeltaGenerator:
    """Draws the menu of the controls that are seldom changed; returns its inside. Unlike a popover, it keeps a value
    that the app writes into one of them while it is closed."""
    place = where.container(width=110, key=f"settings_menu {prefix}")
    return place.expander("Settings", icon=":material/tune:", key=f"{prefix}_settings", on_change="rerun")


def with_own(options: Sequence[str], key: str) -> list[str]:
    """Returns the options and, last, a value that the user typed or the address holds instead."""
    own = current_value(key)
    return [*options, own] if own and own not in options else list(options)


def choose_ranking(key: str, where: DeltaGenerator, first: str = ORDER) -> str:
    """Draws the choice of a pruning order, `first` by default; with "" nothing, which gives ""."""
    look: dict[str, Any] = {"index": OF_ONE_TASK.index(first) if first else None, "help": RANKING_HELP}
    return one_listed(where, "Pruning order", OF_ONE_TASK, key, placeholder="…", **look) or ""


def type_mask(key: str, where: DeltaGenerator) -> str:
    """Draws the field for a mask in text form."""
    example = st.session_state.get(EXAMPLE)
    hold(key)
    return where.text_input("Prune these as well", key=key, bind="query-params", placeholder=example, help=MASK_HELP)


def pruned_and_kept(typed: str) -> tuple[str, str]:
    """Returns the components that a mask in text form prunes, and those it keeps, such as ("L1H1-3", "L0H0"); `MANY`
    for those that are long to read, "" for none."""
    pruned, _, kept = " ".join(typed.replace(",", " ").split()).partition(KEEP)
    pruned, kept = (MANY if len(names) > MOST_IN_SHORT else names.strip() for names in (pruned, kept))
    return pruned, kept


def beside_level(typed: str, named: str = "") -> str:
    """Returns what a mask in text form changes, for next to a slider's level: "+ 4 heads, L0H0 kept". `named` counts
    what it prunes, "" if that is not known."""
    pruned, kept = pruned_and_kept(typed)
    return ", ".join([f"+ {named or pruned}"] * bool(pruned) + [f"{kept} kept"] * bool(kept))


def example_mask(shape: ModelShape) -> str:
    """Returns the text of a mask that fits this model, such as "L1H3 L3H* F3"."""
    last = shape.n_layers - 1
    return f"L{last // 2}H{min(3, shape.n_heads - 1)} L{last}H* F{last}"
