"""The model's guess after each layer (logit lens), as a grid of layers and tokens; one token over the layers."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from engine.heads.logit_lens import LogitLens, logit_lens
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Target
from pages.ui.attention import charts, tables
from pages.ui.controls.texts import Chosen
from pages.ui.figures.sheet import Sheet
from pages.ui.page.runtime import session
from pages.ui.page.work import Work

TITLE, GRID, OVER_LAYERS = "The guess after each layer", "Guess after each layer", "Over the layers"
HELP = (
    "Logit lens: the residual stream after each layer, read by the final norm and the unembedding as if no layer "
    "followed. In a cell: the likeliest next token. Color: the probability of the token that really follows."
)
SHOWN = 20  # tokens side by side, half of them for two models


def draw_lens(target: Target, text: Chosen, mask: Mask, sheet: Sheet) -> dict[str, Measurement[LogitLens]]:
    """Draws the section: of a pruned model next to the full one. Returns by name what it shows once it is opened."""
    at = st.expander(f"{TITLE} (logit lens)", key="attention_lens", on_change="rerun")
    if not at.open:
        return {}
    full = Mask.full(target.shape)
    masks = {"": mask} if mask.is_full else {"Full model": full, "Pruned model": mask}
    wanted = {who: logit_lens(target, text.text, each) for who, each in masks.items()}
    with at:
        found = {who: _found(who, each) for who, each in wanted.items()}
        known = {who: each for who, each in found.items() if each is not None}
        if len(known) == len(wanted):
            _draw(known, sheet)
    return {_named("Logit lens", who): each for who, each in wanted.items()}


def _found(who: str, wanted: Measurement[LogitLens]) -> LogitLens | None:
    slot = _named("attention lens", who)
    return wanted.stored(session()) or Work(slot, _named("Logit lens", who), wanted, while_seen=True).awaited()


def _named(what: str, who: str) -> str:
    return f"{what}, {who.lower()}" if who else what


def _draw(found: Mapping[str, LogitLens], sheet: Sheet) -> None:
    n, first, shown = min(len(each.token_ids) for each in found.values()), 0, SHOWN // len(found)
    if n > shown:
        about = f"The grid shows {shown} of {n} tokens, from this one on."
        first = st.slider("First token", 0, n - shown, n - shown, key="attention_lens_first", help=about)
    keys = {who: _named("attention_lens_grid", who) for who in found}
    states: list[Any] = [st.session_state.get(key, {}).get("selection", {}).get("cell") for key in keys.values()]
    index = next((points[0]["index"] for points in states if points), first + min(shown, n) - 2)
    for at, (who, lens) in zip(st.columns(len(found), gap="medium"), found.items(), strict=True):
        rows, words = tables.lens_rows(lens), tables.lens_in_words(lens)
        sheet.tables[_named(GRID, who)] = rows
        sheet.says.append(f"{who}: {words}" if who else words)
        at.markdown(f"**{who}.** {words}" if who else words, help=HELP)
        drawn = charts.lens_grid(rows[rows["index"].between(first, first + shown - 1)])
        sheet.draw(_named(GRID, who), drawn, keys[who], words, at, on_select="rerun", selection_mode="cell")
        of_token = rows[rows["index"] == index]
        if of_token["next"].iloc[0]:
            of = tables.lens_of_token_in_words(of_token)
            at.markdown(of)
            line = charts.lens_line(of_token)
            sheet.draw(_named(OVER_LAYERS, who), line, _named("attention_lens_line", who), of, at)
