"""Small models trained here: Llama but for smeared keys or shortformer positions (`architecture.modeling_headroom`)."""

from dataclasses import replace

from engine.architecture.families import llama

FAMILY = replace(
    llama.FAMILY,
    name="Headroom small",
    fields=llama.FAMILY.fields | {"smeared", "positions"},
    is_stock=False,
    tiny={"small": {"smeared": True, "attention_bias": True}},
)
