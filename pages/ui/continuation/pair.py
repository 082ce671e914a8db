"""A pair of positions to patch: a token of the other prompt, dragged onto one of this prompt, and its line over the
layers."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from engine.heads.patching import MAX_TOKENS, Patching, PatchMap, patch_map
from engine.measurement import Measurement
from engine.models.session import Target
from pages.ui.continuation.unfit import is_unfit
from pages.ui.figures import charts
from pages.ui.figures.sheet import Sheet
from pages.ui.page.address import nearest, unseen_field
from pages.ui.page.components import component_of
from pages.ui.page.runtime import session
from pages.ui.page.tables import visible, whole_percent
from pages.ui.page.widget_writes import write
from pages.ui.page.work import Work

HTML = """
<div class="pair">
  <div class="note" role="status"></div>
  <div class="tokens" role="group"></div>
  <svg aria-hidden="true"><path></path></svg>
</div>
"""
_COMPONENT = component_of("patch_pair", HTML, Path(__file__).parent, "pair")
NAME, PAIR, TOKENS, SEEN = "Patched pair", "continue_patch_pair", "continue patch tokens", "continue patch seen"
LAST = (-1, -1)  # until a pair is chosen
SLACK = 0.05  # of the difference, by which a line may leave the axis
HELP = (
    "This prompt is read with an activation of the other prompt at one position, at each layer in turn. 0%: the answer "
    "stays. 100%: the difference of the two answers' logits becomes that of the other prompt."
)


def work_of_last(target: Target, prompts: Patching) -> Work[PatchMap]:
    """Returns the work that patches the last position: the first to find that the prompts do not fit."""
    last = patch_map(target, replace(prompts, pair=LAST))
    return Work("continue patch last", NAME, last, priority=2, while_seen=True)


def draw(target: Target, prompts: Patching, sheet: Sheet) -> tuple[Measurement[PatchMap], str]:
    """Draws both prompts, and the line of the chosen pair; returns its measurement, and the pair as in the address once
    it is measured, or else ""."""
    text = unseen_field("Patched pair", PAIR, _normalize)
    last = patch_map(target, replace(prompts, pair=LAST))
    found = _found("continue patch last", last)
    if found is None:
        return last, ""
    n, chosen = len(found.tokens[0]), [int(each) for each in text.split(",") if each]
    if not chosen or max(chosen) >= n:
        text, chosen = "", [n - 1, n - 1]
    data: dict[str, Any] = {"other": found.tokens[1], "own": found.tokens[0], "pair": chosen}
    _COMPONENT(key=TOKENS, data=data | {"seen": st.session_state.get(SEEN, 0)}, on_hand_change=_on_choice)
    wanted = patch_map(target, replace(prompts, pair=(chosen[0], chosen[1]))) if text else last
    found = _found("continue patch pair", wanted) if text else found
    if found is None:
        return wanted, ""
    rows, words = rows_of(found), in_words(found)
    sheet.tables[NAME] = rows
    st.markdown(words, help=HELP)
    if found.is_clear:
        sheet.draw(NAME, _chart(rows), "continue_patch_line", words)
    return wanted, text


def _found(slot: str, wanted: Measurement[PatchMap]) -> PatchMap | None:
    """Returns the result; until it is measured None, and draws its progress."""
    if (found := wanted.stored(session())) is not None:
        return found
    work = Work(slot, NAME, wanted, priority=2, while_seen=True)
    if (found := work.value()) is None and not is_unfit(work):
        work.awaited(0.0)
    return found


def _normalize(text: str) -> str | None:
    known = [each for part in text.split(",") if (each := nearest(part, (0, MAX_TOKENS - 1))) is not None]
    return ",".join(known) if len(known) == 2 else None


def _on_choice() -> None:
    """Writes the pair chosen in the browser into the address."""
    said: Any = (st.session_state.get(TOKENS) or {}).get("hand")
    try:
        pair, number = f"{int(said['from'])},{int(said['to'])}", int(said["number"])
    except (TypeError, KeyError, ValueError, OverflowError):
        return
    st.session_state[SEEN] = number
    write(PAIR, pair)


def rows_of(found: PatchMap) -> pd.DataFrame:
    """Returns one row per layer: the position in each prompt, both tokens, and the effect."""
    assert found.pair is not None
    i, j = found.pair
    about = {"position_other": i, "token_other": found.tokens[1][i], "position": j, "token": found.tokens[0][j]}
    effects = [float(effects[0]) for _, effects in sorted(found.effects.items())]
    return pd.DataFrame({"layer": range(len(effects)), **about, "effect": effects})


def in_words(found: PatchMap) -> str:
    """Returns which tokens are patched, and at which layer that brings back most of the difference."""
    if not found.is_clear:
        return f"{found.unclear[0].upper()}{found.unclear[1:]}."
    rows = rows_of(found)
    best = rows.iloc[int(rows["effect"].to_numpy().argmax())]
    other, own = visible(best["token_other"]), visible(best["token"])
    return (
        f"“{other}” of the other prompt (position {best['position_other']}) in place of “{own}” (position "
        f"{best['position']}) brings back at most **{whole_percent(best['effect'])}** of the difference, in layer "
        f"{best['layer']}."
    )


def _chart(rows: pd.DataFrame) -> charts.Picture:
    low, high = rows["effect"].min() + SLACK, rows["effect"].max() - SLACK
    return charts.picture(_template(min(0.0, math.floor(2 * low) / 2), max(1.0, math.ceil(2 * high) / 2)), layers=rows)


@charts.kept
def _template(low: float, high: float) -> charts.Template:
    axis = alt.Axis(format=".0%", tickCount=5)
    y = alt.Y("effect:Q", title="Share of the difference", scale=alt.Scale(domain=[low, high]), axis=axis)
    x = alt.X("layer:O", title="Layer", axis=alt.Axis(labelAngle=0, labelOverlap=True))
    line = charts.named_chart("layers").mark_line(point={"size": 50})
    return charts.template(220, line.encode(x=x, y=y, tooltip=charts.tips("layer:O|Layer; effect:Q|Effect|+.1%")))
