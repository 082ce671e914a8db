"""Small models trained here: Llama but for smeared keys or shortformer positions (`architecture.modeling_headroom`)."""

from engine.architecture.families import llama

FAMILY = llama.FAMILY.derived(
    name="Headroom small",
    also={"smeared", "positions"},
    is_stock=False,
    heads_divide_width=True,
    tiny={"small": {"smeared": True, "attention_bias": True}},
)
