"""What moves the answer: activations of another prompt patched into this one, by layer and position."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from engine.demo import OTHER_PROMPT
from engine.heads.patching import HEADS, Patching, PatchMap, patch_map
from engine.models.session import Target
from engine.requests import PatchPrompts
from pages.ui.continuation import pair
from pages.ui.continuation.unfit import KEYS, OTHER_KEY, draw_unfit, is_unfit
from pages.ui.controls.controls import folded, one_of
from pages.ui.downloads.origin import Origin, of_model
from pages.ui.figures import charts
from pages.ui.figures.sheet import Sheet
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import errors_shown, session
from pages.ui.page.tables import number, plain, visible
from pages.ui.page.widget_writes import write
from pages.ui.page.work import Work, live

TITLE = "What moves the answer: patch another prompt into this one"
NAME, OPEN = "Patching", "continue_patch"
KIND_KEY = "continue_patch_kind"
OTHER_HELP = "A second prompt with as many tokens, which ends in another answer. It is part of the address."
PATCHED = {"stream": "Residual stream", "attention": "Attention output", "ffn": "FFN output", HEADS: "Single heads"}
PATCHED_HELP = (
    "What is taken from the other prompt, at one layer and position at a time (the stream: before it). Single heads: "
    "the output of one head at the last token."
)
HELP = (
    "This prompt is read with one activation of the other. 0 (gray): the answer stays. 1 (orange): the difference of "
    "the two answers' logits becomes that of the other prompt. Below 0 (blue): it moves away from it."
)
MEASURE_HELP = "Each layer and position, six layers at a time, in the background. Finished layers are shown and kept."
AGAIN_HELP = "Patches these prompts again; the results are kept."
HISTORY, MOST_KEPT = "continue patch history", 5  # in the session: what was patched, the latest first
NAMED = 28  # characters of a prompt, its last


def draw(origin: Origin, target: Target, prompt: str, sheet: Sheet, since_s: float) -> Origin:
    """Draws the section; returns the origin of the screen, with its own once it is opened."""
    open_section = partial(_draw_open, origin, target, prompt, sheet, since_s)
    holds = [OTHER_KEY, KIND_KEY, pair.PAIR]
    return folded(TITLE, OPEN, open_section, icon=":material/swap_horiz:", in_address=True, holds=holds) or origin


def _draw_open(origin: Origin, target: Target, prompt: str, sheet: Sheet, since_s: float) -> Origin:
    other_at, kind_at = st.columns([6, 7], vertical_alignment="bottom")
    other = (
        other_at.text_area("Other prompt", OTHER_PROMPT, 80, key=OTHER_KEY, help=OTHER_HELP, bind="query-params") or ""
    )
    kind = one_of(kind_at, "Patched", PATCHED, KIND_KEY, PATCHED_HELP)
    if not other.strip():
        st.caption("Type another prompt with as many tokens.")
        return origin
    with errors_shown():
        prompts = Patching(prompt, other, kind)
        asked = PatchPrompts(**of_model(target), prompt=prompt, other_prompt=other, patched=kind, out="patching.csv")
        requests, measured, patched = [asked], {NAME: patch_map(target, prompts)}, ""
        if kind != HEADS:
            measured[pair.NAME], patched = pair.draw(target, prompts, sheet)
            requests.append(replace(asked, pair=patched or "-1", out="patched_pair.csv"))
            if is_unfit(first := pair.work_of_last(target, prompts)):
                draw_unfit(first, prompt)
                return origin
        work: Work[PatchMap] = Work("continue patch", NAME, measured[NAME], priority=2)
        live(work.watched(), partial(_draw_progress, work, target.shape.n_layers, kind, prompt, sheet), since_s)
        is_measured = measured[NAME].stored(session()) is not None
        _draw_history(prompt, other, kind, [*([patched] if patched else []), *([""] if is_measured else [])])
        return replace(origin, requests=[*origin.requests, *requests], measurements={**origin.measurements, **measured})
    return origin


def _draw_history(prompt: str, other: str, kind: str, patched: Sequence[str]) -> None:
    """Draws a button for each map and pair of positions that was patched before in this session, and is not shown now;
    `patched`: the pairs of these prompts that are shown and measured, "" for the map."""
    history, now = st.session_state.setdefault(HISTORY, []), [(prompt, other, kind, each) for each in patched]
    history[:] = [*now, *(each for each in history if each not in now)][:MOST_KEPT]
    for each in history[len(now) :] if not presenting() else ():
        what = f"{PATCHED[each[2]]}, position {each[3].replace(',', ' into ')}" if each[3] else PATCHED[each[2]]
        label = plain(f"{what}: … {each[0][-NAMED:]} / … {each[1][-NAMED:]}".replace("\n", " "))
        look: dict[str, Any] = {"type": "tertiary", "icon": ":material/history:", "help": AGAIN_HELP}
        st.button(label, **look, on_click=_patch_again, args=each)


def _patch_again(*values: str) -> None:
    for key, value in zip((*KEYS, KIND_KEY, pair.PAIR), values, strict=True):
        write(key, value)


def _draw_progress(work: Work[PatchMap], n_layers: int, kind: str, prompt: str, sheet: Sheet) -> None:
    """Draws the layers that are measured, and the progress or the button that measures the others."""
    known = [each for each in (work.found, *work.stored()) if each is not None]
    found = max(known, key=lambda each: len(each.effects), default=None)
    if work.is_first_read:
        work.reading_line()
    elif is_unfit(work):
        draw_unfit(work, prompt)
    elif not work.line() and (found is None or len(found.effects) < n_layers):
        work.offer(
            "Patch every head" if kind == HEADS else "Patch every layer and position",
            "swap_horiz",
            MEASURE_HELP,
            by_size=True,
            least_s=0.0,
        )
    if found is not None:
        rows, words = rows_of(found), in_words(found)
        sheet.tables[NAME] = rows
        st.markdown(words, help=HELP)
        if found.is_clear:
            sheet.draw(NAME, _chart(rows, n_layers, found.kind), f"continue_patch_map {found.kind}", words)


def rows_of(found: PatchMap) -> pd.DataFrame:
    """Returns one row per layer and position: the tokens of both prompts there, as one text, and the effect; of heads
    one per layer and head, named as `token`."""
    named = [visible(a) if a == b else f"{visible(a)} / {visible(b)}" for a, b in zip(*found.tokens, strict=True)]
    if found.kind == HEADS:
        named = [f"H{head}" for head in range(len(found.effects[0]))]
    frames = [
        pd.DataFrame({"layer": layer, "position": np.arange(len(named)), "token": named, "effect": effects})
        for layer, effects in sorted(found.effects.items())
    ]
    return pd.concat(frames, ignore_index=True)


def in_words(found: PatchMap) -> str:
    """Returns how far the answers of the two prompts differ."""
    a, b = (visible(answer) for answer in found.answers)
    before, after = (number(each, 1, sign=True) for each in found.differences)
    words = f"Logit of “{b}” minus that of “{a}”: {before} after this prompt, **{after}** after the other."
    if not found.is_clear:
        return f"{words} {found.unclear[0].upper()}{found.unclear[1:]}."
    return words


def _chart(rows: pd.DataFrame, n_layers: int, kind: str) -> charts.Picture:
    marked = rows.assign(at=rows["position"].astype(str) + "|" + rows["token"])
    return charts.picture(_template(n_layers, kind == HEADS), cells=marked)


@charts.kept
def _template(n_layers: int, is_heads: bool) -> charts.Template:
    token = "substring(datum.label, indexof(datum.label, '|') + 1)"
    axis = partial(alt.Axis, ticks=False, domain=False, labelOverlap=False)
    look = axis(labelExpr=token, labelAngle=0 if is_heads else -45, labelLimit=90)
    title = "Head at the last token" if is_heads else "Token (this prompt / the other)"
    x = alt.X("at:N", sort=alt.EncodingSortField("position", op="min"), title=title, axis=look)
    domain = list(range(n_layers))
    y = alt.Y("layer:O", title="Layer", scale=alt.Scale(domain=domain), axis=axis(labelOverlap=True))
    legend = alt.Legend(orient="top", direction="horizontal", titleLimit=400, values=[-1, 0, 1])
    scale = charts.around_zero(1)
    color = alt.Color("effect:Q", title="Share of the difference", scale=scale, legend=legend)
    place = "token:N|Head" if is_heads else "position:Q|Position; token:N|Token"
    tooltip = charts.tips(f"layer:O|Layer; {place}; effect:Q|Effect|+.2f")
    base = charts.named_chart("cells").encode(x=x, y=y, color=color, tooltip=tooltip)
    row_px = min(24, max(12, 400 // n_layers))
    return charts.template(row_px * n_layers + 190, base.mark_rect(**charts.CELL))
