"""What tests know of the embedded model: its shape, read from its config, and what screens say of a level of it."""

import json

from engine.architecture.family import shape_of
from engine.demo import model_folder

SHAPE = shape_of(json.loads((model_folder() / "config.json").read_text(encoding="utf-8")))
HEADS, FFNS = SHAPE.n_heads_total, SHAPE.n_layers
LAST_HEAD = f"L{SHAPE.n_layers - 1}H{SHAPE.n_heads - 1}"


def heads(n: int) -> str:
    """Such as "5 of 32 heads"."""
    return f"{n} of {HEADS} heads"


def heads_at(percent: int) -> str:
    """The same of a level."""
    return heads(n_at(percent))


def n_at(percent: int) -> int:
    """How many heads a level prunes."""
    return HEADS * percent // 100


def ffns(n: int) -> str:
    """Such as "1 of 4 FFNs"."""
    return f"{n} of {FFNS} FFNs"
