"""The component that sets a text as text, each token tinted, with a readout beside it; it asks Python for nothing."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

HERE = Path(__file__).parent
HTML = """
<div class="reading">
  <div class="legend"></div>
  <div class="columns">
    <div class="text" role="group"></div>
    <div class="readout"></div>
  </div>
  <div class="landmarks"></div>
  <div class="said" role="status" aria-live="polite"></div>
</div>
"""
CSS, JS = ((HERE / f"token_text.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
_COMPONENT = component("headroom_token_text", html=HTML, css=CSS, js=JS)
LOSS_NATS = 10.0  # full colour of a loss; guessing among 50,000 tokens costs 10.8


def token_text(data: Mapping[str, Any], view: str, full_nats: float, name: str, n_total: int, note: str) -> None:
    """Draws the text of `tables.component_data`, tinted by `view` ("B − A", "A" or "B").

    `full_nats` is the difference that gets full colour. The text is set anew only when other tokens are shown.
    """
    tokens = repr((name, data["start"], data["pieces"], data["ids"])).encode(errors="surrogatepass")
    key, full = hashlib.blake2b(tokens, digest_size=16).hexdigest(), full_nats if view == "B − A" else LOSS_NATS
    shown = {"view": view, "full": full, "name": name, "n_total": n_total, "note": note, "text_key": key}
    _COMPONENT(key="passage_tokens", data={**data, **shown})
