"""Numbers in words and tables as files, alike on every screen."""

import math

import pandas as pd

from engine.models.masks import Mask
from engine.shapes import ModelShape


def to_csv(frame: pd.DataFrame) -> bytes:
    """The frame as a CSV file."""
    return frame.to_csv(index=False).encode()


def number(value: float, digits: int = 2, sign: bool = False) -> str:
    """Such as "−0.42", with a true minus and a zero without a sign; a dash where it is undefined."""
    if math.isnan(value):
        return "–"
    text = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def percent(share: float) -> str:
    """A share with one decimal, such as "41.2 %"."""
    return f"{100 * share:.1f} %"


def p_in_words(p: float) -> str:
    """Such as "p = 0.012"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def mask_in_words(shape: ModelShape, mask: Mask | None) -> str:
    """Such as "19 of 48 heads, 0 of 6 FFNs pruned"."""
    if mask is None:
        return "What is pruned is not known yet"
    heads = f"{mask.n_heads_pruned} of {shape.n_heads_total:,} heads"
    return f"{heads}, {mask.n_ffns_pruned} of {shape.n_layers} FFNs pruned"
