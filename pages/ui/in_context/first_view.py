"""What the In context screen opens with: a text whose entries repeat, and the embedded model with and without its
induction heads.

No streamlit here: the results of this view can be made before the app is started.
"""

from collections.abc import Collection
from typing import Any

from engine.texts.passages import LOG_BOOKS, N_TEXTS

HEADS, ORDER = 10, "induction-first"  # of the embedded model's heads, in percent: its four induction heads
AROUND = 10  # tokens on either side that the score is averaged over
PREFIX, SEEN = "incontext_", "incontext_first"  # of query parameters; in an address: these choices were made once
TO_PRUNE = ("incontext_heads", "incontext_ffns", "incontext_mask")  # set by other screens when a mask is shared


def first_choices(said: Collection[str], held: Collection[str], is_demo: bool) -> dict[str, Any]:
    """Returns the values of the controls in a first view, by query parameter; {} if an address `said` anything, or the
    session has `held` the screen's controls, so that addresses and later choices keep their meaning."""
    if any(name.startswith(PREFIX) for name in said) or SEEN in held:
        return {}
    found: dict[str, Any] = {SEEN: "seen", "incontext_text": LOG_BOOKS.name}
    found["incontext_texts"] = LOG_BOOKS.n_texts if is_demo else N_TEXTS  # entries end at other places for each model
    if not any(name in held for name in TO_PRUNE):
        found |= {"incontext_order": ORDER} | ({"incontext_heads": HEADS} if is_demo else {})
    return found
