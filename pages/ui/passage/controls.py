"""The Passage screen's own controls, all in the address: the choice of A, the colors of the text."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.heads.induction import induction
from engine.importance.rules import Evidence
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.models.session import Target
from pages.ui.controls.controls import Levels, one_of
from pages.ui.controls.pruning import HEADS, RANKING
from pages.ui.controls.selection import compared
from pages.ui.controls.study import Setup
from pages.ui.figures.drawing import draw_table
from pages.ui.page.runtime import session
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import level_percent, number, plain
from pages.ui.page.widget_writes import write
from pages.ui.passage.tables import VIEWS, largest

FULL_NATS = {nats: f"± {nats} nats" for nats in (2, 4, 8)}
A_MASK: dict[str, Any] = {
    "help": "The model that B is compared with: the sidebar's, unpruned unless a mask such as `L3H5 L4H* F7` is given. "
    "Another precision, revision or model is chosen in the sidebar, under “Compare with”; it has to cut the text into "
    "the same tokens, and is loaded in turn with B's where both do not fit.",
    "bind": "query-params",
}
VIEW_HELP = "The difference of the two losses, or one of them. Loss: -log p of the token, in nats."
SCALE_HELP = "The scale stays while the sliders move; beyond it all look alike."
SHARE = level_percent(10 * HEADS)
EXAMPLE_HELP = f"Prunes these alone: of all heads the {SHARE} that match prefixes best."
EXAMPLE = {"passage_order": RANKING, "passage_heads": HEADS, "passage_mask": ""}


def choose_a(where: DeltaGenerator, setup: Setup) -> tuple[LoadSpec, str]:
    """Draws the choice of A; returns (model and precision, its mask as text)."""
    spec = compared(setup.spec) or setup.spec
    mask = where.text_input(f"A lacks (A: {plain(spec.in_words)})", key="passage_a_mask", placeholder="none", **A_MASK)
    return spec, mask or ""


def choose_colours(where: DeltaGenerator) -> tuple[str, int]:
    """Draws the choice of colors; returns (one of VIEWS, nats of full color)."""
    named = {view: view if view == VIEWS[0] else f"Loss of {view}" for view in VIEWS}
    view = one_of(where, "Color by", named, "passage_view", VIEW_HELP)
    return view, one_of(where, "Full color at", FULL_NATS, "passage_scale", SCALE_HELP, default=4)


def offer_example(where: DeltaGenerator, target: Target, levels: Levels, mask: Mask | None) -> None:
    """Draws the button that prunes the induction heads in B, unless B's `mask` (None: not known yet) prunes them."""
    already = False
    known = induction(target).stored(session())
    if mask is not None and mask.n_heads_pruned and known is not None:
        pruning = Levels(levels.task, RANKING, 10 * HEADS, 0, "").pruning(target.shape)
        example = pruning.known_mask(target.shape, Evidence(prefix_matching=known.mean["prefix_matching"]))
        already = example is not None and not (np.array(mask.heads) & ~np.array(example.heads)).any()
    if not already:
        look: dict[str, Any] = {"icon": ":material/content_cut:", "key": "passage example", "help": EXAMPLE_HELP}
        where.button("Prune the induction heads", on_click=_show_example, **look)


def _show_example() -> None:
    for key, value in EXAMPLE.items():
        write(key, value)


def largest_tables(where: DeltaGenerator, frame: pd.DataFrame, text: str) -> None:
    """Draws the ten tokens whose prediction by B is most improved, and most worsened, against A."""
    columns = {
        "index": st.column_config.NumberColumn(
            "Place", format="%d", help="The token's place in the text, from 1.", width=48
        ),
        "context": st.column_config.TextColumn("After", help="The end of the text before it.", width=200),
        "token": st.column_config.TextColumn("Token", width=62),
        "difference_nats": st.column_config.Column("B − A, nats", width=70),
    }
    for at, gains, title in zip(where.columns(2), (True, False), ("B better", "B worse"), strict=True):
        at.markdown(f"**{title}**")
        formats = {"difference_nats": partial(number, sign=True)}
        shown = largest(frame, text, gains).reset_index(drop=True)
        draw_table(shown, columns, f"The ten tokens on which {title.lower()} by most", at, formats)
