"""The attention view: two components, so that a new head brings its pattern to the browser and nothing else.

One draws a text as tokens, the map of heads and the readout, from the numbers of a text and mask. The other draws
nothing: it passes the pattern of the chosen heads to the first. Both get bytes: a length, JSON, then the arrays.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st
from streamlit.components.v2 import component

from engine.heads.attention import HeadView, Overview
from engine.models.masks import Mask
from pages.ui.attention.tables import names_of, places_to_start
from pages.ui.page.address import token_field, unseen_field
from pages.ui.page.components import component_of
from pages.ui.page.widget_writes import write

WHOLE_ROWS, N_LARGEST = 256, 32  # for a longer text, only the largest sources of each destination are sent
VIEW, PATTERN = "attention_view", "attention_pattern"
TOKEN, SWITCHES = "attention_token", "attention_switches"  # query parameters
CHOICES = (("destination", "source"), ("itself", "next"), ("score", "raised"))  # of each switch
HTML = """
<div class="screen">
  <div class="words">
    <div class="text" role="listbox"></div>
    <div class="colors">
      <div class="color">
        <fieldset class="switch"><legend>Violet</legend>
          <label><input type="radio" name="mode" value="destination" checked>where it looks</label>
          <label><input type="radio" name="mode" value="source">who looks at it</label></fieldset>
        <span class="scale looked"></span>
      </div>
      <div class="color">
        <fieldset class="switch about"><legend>Orange</legend>
          <label><input type="radio" name="about" value="next" checked>raised the next token</label>
          <label><input type="radio" name="about" value="itself">raised this token</label></fieldset>
        <span class="scale raised"></span>
      </div>
    </div>
  </div>
  <div class="picker">
    <div class="color">
      <fieldset class="switch"><legend>Heads by</legend>
        <label><input type="radio" name="tint" value="score" checked>induction score</label>
        <label><input type="radio" name="tint" value="raised">nats added</label></fieldset>
    </div>
    <div class="map grid" role="group" aria-label="Heads, layer by layer: arrow keys move, Enter chooses one"></div>
    <p class="hint quiet full"></p>
    <p class="hint quiet">Click: one head. Shift-click: several. Keys [ and ]: the next.</p>
  </div>
  <div class="readout" role="status" aria-live="polite"></div>
</div>
"""
HAND_OVER = """
export default function ({ data, parentElement }) {
  const page = parentElement.ownerDocument
  page.headroomAttention = data
  page.dispatchEvent(new Event("headroom-attention"))
}
"""
NOTHING = "<span hidden></span>\n<!-- draws nothing -->"
_VIEW = component_of("attention_view", HTML, Path(__file__).parent, "view", "map", "readout")
_PATTERN = component("headroom_attention_pattern", html=NOTHING, js=HAND_OVER)


def attention_view(packet: bytes, on_heads: Callable[[], None], of: str) -> dict[str, Any]:
    """Draws text, map and readout of `overview_packet`; returns the token and switches for `pattern_packet`. Calls
    `on_heads` when heads are chosen, see `asked_heads`. `of` is the text."""
    look = {
        "token": token_field(TOKEN, of),
        "switches": unseen_field("Switches", SWITCHES, _normalize_switches).split(","),
    }
    _VIEW(key=VIEW, data=packet, on_heads_change=on_heads, on_look_change=_on_look)
    return look | {"number": _last_report("look").get("number", 0)}


def asked_heads() -> list[str]:
    """Returns the names of the heads last chosen in the browser."""
    return list(_last_report("heads").get("names", []))


def hand_over(packet: bytes) -> None:
    """Passes a `pattern_packet` to the view."""
    _PATTERN(key=PATTERN, data=packet)


def overview_packet(of: str, name: str, seen: Overview, mask: Mask, scores: np.ndarray | None, rows: str) -> bytes:
    """Returns the data that the view shows of a text under a mask. `of` changes with either; `scores` (L, H) tint the
    map.

    `rows`, such as ":", limits pointing to these tokens.
    """
    n_layers, n_heads, side, _ = seen.thumbnails.shape
    unit, raised = _quantize(seen.raised_nats)
    meta = {"of": of, "name": name, "pieces": seen.pieces, "first": seen.first_text, "unit": unit, "rows": rows}
    meta |= {"starts": places_to_start(seen), "layers": n_layers, "heads": n_heads, "side": side}
    meta |= {"pruned": names_of(np.argwhere(~np.array(mask.heads)))}
    arrays = {"thumbnails": seen.thumbnails, "raised": raised}
    arrays |= {name: getattr(seen, name).astype("<f4") for name in ("ffns", "direct", "rest", "logit")}
    return pack(meta, arrays | ({} if scores is None else {"scores": scores.astype("<f4")}))


def pattern_packet(of: str, heads: Sequence[str], view: HeadView, look: Mapping[str, Any]) -> bytes:
    """Returns the pattern of the chosen heads, two bytes per number: the lower triangle, or for a long text the largest
    sources of each destination with their indices. `look` is the return value of `attention_view`."""
    n = len(view.pattern)
    unit, raised = _quantize(view.raised_nats)
    tables = {"attention": np.round(view.pattern * 65535).astype("<u2"), "nats": raised}
    arrays: dict[str, np.ndarray] = {}
    for name, table in tables.items():
        if n <= WHOLE_ROWS:
            arrays[name] = table[np.tril_indices(n)]
        else:
            at = np.argpartition(-np.abs(table.astype(np.int32)), N_LARGEST, axis=1)[:, :N_LARGEST]
            arrays |= {name: np.take_along_axis(table, at, 1), f"{name}_at": at.astype("<u2")}
    meta = {"of": of, "heads": list(heads), "number": _last_report("heads").get("number", 0), "unit": unit}
    meta["look"] = dict(look)
    return pack(meta | ({} if n <= WHOLE_ROWS else {"k": N_LARGEST}), arrays)


def pack(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Returns the JSON's length, the JSON with (type, offset, count) of each array, the arrays; all 4-byte aligned."""
    places, body = {}, bytearray()
    for name, array in arrays.items():
        places[name] = [array.dtype.str[1:], len(body), array.size]
        body += array.tobytes()
        body += bytes(-len(body) % 4)
    head = json.dumps(meta | {"arrays": places}).encode()
    head += b" " * (-len(head) % 4)
    return len(head).to_bytes(4, "little") + head + bytes(body)


def _quantize(values: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns (unit, two-byte integers): values = unit * numbers, exact to a 65,000th of the largest."""
    values = values.astype(np.float32)
    unit = float(np.abs(values).max(initial=0)) / 32767 or 1.0
    return unit, np.round(values / unit).astype("<i2")


def _normalize_switches(text: str) -> str | None:
    words = text.split(",")
    fits = len(words) == len(CHOICES) and all(word in known for word, known in zip(words, CHOICES, strict=True))
    return text if fits else None


def _on_look() -> None:
    """Writes the locked token and the switches into the address."""
    look = _last_report("look")
    token = look.get("token")
    write(TOKEN, "" if token is None else str(token))
    write(SWITCHES, ",".join(look.get("switches", [])))


def _last_report(what: str) -> dict[str, Any]:
    """Returns the view's last report of "heads" or of its "look"."""
    return (st.session_state.get(VIEW) or {}).get(what) or {}
