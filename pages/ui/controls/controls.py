"""Controls that several screens share, bound to the address."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import streamlit as st

from pages.ui.page.address import current_value, flag, one_among, put_right
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.widget_writes import follow_default

T = TypeVar("T")


def one_of(where: DeltaGenerator, label: str, named: Mapping[T, str], key: str, help: str | None, **kwargs: Any) -> T:
    """Draws a choice of one of the keys of `named` (value: label), bound to the address; the first is the default."""
    kwargs = {"default": next(iter(named)), "required": True, "bind": "query-params", **kwargs}
    put_right(key, label, one_among(named.values()))
    return where.segmented_control(label, list(named), format_func=named.__getitem__, key=key, help=help, **kwargs)


def one_listed(where: DeltaGenerator, label: str, options: Collection[str], key: str, **kwargs: Any) -> str:
    """Draws a list to choose one of the options from, bound to the address; the first is the default, or `index`
    (None: nothing, which gives None)."""
    index = kwargs.get("index", 0)
    follow_default(key, None if index is None else list(options)[index])
    put_right(key, label, one_among(options))
    return where.selectbox(label, options, key=key, bind="query-params", filter_mode="contains", **kwargs)


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


def with_own(options: Sequence[str], key: str) -> list[str]:
    """Returns the options and, last, a value that the user typed or the address holds instead."""
    own = current_value(key)
    return [*options, own] if own and own not in options else list(options)
