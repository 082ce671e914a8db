"""The user's recipe: every control in the address, and the resulting Recipe."""

from pathlib import Path
from typing import Any

import streamlit as st

from engine.files import named
from engine.training.recipe import Recipe
from pages.ui.controls.controls import one_listed
from pages.ui.page.address import flag, number_field, put_right

RATES = ("0.0005", "0.001", "0.002", "0.004", "0.008")
REPEATS_HELP = (
    "The share of rows that are random tokens repeated with a new random period for every row, instead of text. With "
    "more of them the phase change comes sooner; 0 is text alone. It applies to both buttons next to it."
)
TEXT_HELP = "A file or a folder on the computer that runs this app. Empty: Python source and documentation found there."


def repeats_dial() -> float:
    """Draws the dial; returns the share of repeats, 0 to 1."""
    put_right("live_repeats", "Repeats", lambda text: text if text in {str(n) for n in range(0, 101, 5)} else None)
    more: dict[str, Any] = {"key": "live_repeats", "bind": "query-params", "format": "%d%%"}
    return st.slider("Repeats", 0, 100, 50, 5, help=REPEATS_HELP, **more) / 100


def own_recipe(repeats: float) -> tuple[Recipe, Path | None]:
    """Draws the form; returns its recipe, and the text to read. UsageError if no model can be trained so."""
    first, second, third, fourth = st.columns(4)
    layers = _number(first, "Layers", (1, 6), 2, "Layers of the model.")
    heads = _number(second, "Heads", (1, 64), 8, "Attention heads of each layer.")
    width = _number(third, "Width", (2, 1024), 128, "Width of the stream: a multiple of twice the heads.")
    context = _number(fourth, "Context", (16, 2048), 128, "Tokens of a row.")
    batch = _number(first, "Batch", (1, 256), 8, "Rows of a step.")
    thousands = _number(second, "Thousand tokens", (1, 1_000_000), 3000, "How much it is trained on, in all.")
    about = "Learning rate of AdamW, reached over the first 100 steps and then constant."
    rate = one_listed(third, "Rate", RATES, "live_rate", index=1, help=about)
    seed = _number(fourth, "Seed", (0, 9999), 0, "Of the first weights and of the rows.")
    about = "Rotary, or as in Olsson et al.: sinusoids that are added to queries and keys alone (shortformer)."
    positions: Any = one_listed(first, "Positions", ("rotary", "shortformer"), "live_positions", help=about)
    with second:
        smeared = _switch("Smeared keys", "live_smeared", "Each key has a trained share of the key before it.")
        about = "A pair of tokens counts in the loss only where a row has it first: nothing rewards an induction head."
        hapax = _switch("No loss on copies", "live_hapax", about)
        mlp = _switch("MLPs", "live_mlp", "A gated FFN after the attention of each layer.")
    text = third.text_input("Text", key="live_text", bind="query-params", help=TEXT_HELP).strip()
    period = (8, 32) if context >= 64 else (2, context // 2)
    recipe = Recipe(layers, heads, width, context, mlp, smeared, positions, batch=batch, rate=float(rate),
                    tokens=1000 * thousands, repeats=repeats, period=period, seed=seed, hapax=hapax)  # fmt: skip
    return recipe, named(text, "Text").absolute() if text else None


def _number(where: Any, label: str, ends: tuple[int, int], value: int, help: str) -> int:
    key = f"live_{label.lower().replace(' ', '_')}"
    return int(number_field(where, label, ends, key, value=value, help=help))


def _switch(label: str, key: str, help: str) -> bool:
    put_right(key, label, flag)
    return st.toggle(label, key=key, bind="query-params", help=help)
