"""Names of tensors that say how weights were saved: from inside a wrapper, whose prefix is taken off, or as something
else than the plain weights of a model.
"""

import re
from collections.abc import Iterable

from engine.architecture.families.definition import Family
from engine.errors import HeadroomError

# what torch.compile, FSDP and checkpointing put into names, in front or in each layer
WRAPPERS = re.compile(r"(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
FULL_PRECISION = "Headroom reads plain weights and quantizes them itself: use the model that it was made from"
KINDS = [  # names, what such a tensor is, what to do
    (r"(lora_|ia3_|hada_w\d|lokr_w\d|oft_[rR]|boft_[rRs]|vera_|base_layer\.|modules_to_save\.|prompt_embeddings).*",
     "is of an adapter that was not merged", "merge it (`merge_and_unload` in PEFT) and save the whole model"),
    (r"SCB|weight_format", "is of 8-bit weights that bitsandbytes wrote", FULL_PRECISION),
    (r"(nested_)?(absmax|quant_map)|quant_state\..*", "is of 4-bit weights that bitsandbytes wrote", FULL_PRECISION),
    (r"qweight|qzeros|g_idx", "is of weights that GPTQ or AWQ quantized", FULL_PRECISION),
    (r"((weight|input|activation|output)_)?scale(_inv|s)?|weight_(packed|shape|zero_point|global_scale)|_(data|scale)",
     "is of quantized weights, such as those in 8-bit floating point", FULL_PRECISION),
    (r"W_q|codebooks|codes|\w+_blocks|\w+_scales", "is of quantized weights", FULL_PRECISION),
    (r"_?flat_param(_\d+)?", "is of a shard that FSDP wrote",
     "gather the whole model (FULL_STATE_DICT) and save that"),
    (r"exp_avg(_sq)?|momentum_buffer|max_exp_avg_sq", "is the state of an optimizer", "save the model's weights"),
    (r"(tok_embeddings|attention\.w[qkvo]|feed_forward\.w\d)\.weight",
     "is named as in the files of Meta and Mistral AI", "use the model in the format of transformers"),
]  # fmt: skip
PATTERNS = [(re.compile(rf"(?:.*\.)?(?:{names})"), what, advice) for names, what, advice in KINDS]


def refuse_foreign(model: str, strangers: Iterable[str]) -> None:
    """HeadroomError where the name of a tensor that the model does not have says what the weights are instead."""
    for name in strangers:
        for pattern, what, advice in PATTERNS:
            if pattern.fullmatch(name):
                raise HeadroomError(f"{model}: {name} {what}; {advice}")


def own_names(names: Iterable[str], family: Family) -> dict[str, str]:
    """The name in the model by the name in the files: without the wrappers that training code puts around a model, and
    without one prefix that all layers have. HeadroomError where two names become one."""
    plain = {name: WRAPPERS.sub("", name) for name in names}
    inside, _, layers = family.layers.rpartition(".")
    in_layer = re.compile(rf"(.*\.)?{layers}\.\d+\..+")
    fronts = {match[1] or "" for name in plain.values() if (match := in_layer.fullmatch(name))}
    prefix = _prefix(fronts.pop(), f"{inside}.") if len(fronts) == 1 else ""
    found, files = {name: without.removeprefix(prefix) for name, without in plain.items()}, dict[str, str]()
    for name, own in found.items():
        if (other := files.setdefault(own, name)) != name:
            raise HeadroomError(f"{other} and {name} are both the model's {own}; keep one of them")
    return found


def _prefix(front: str, due: str) -> str:
    """What stands before the model's own names, where its layers lie behind `front` and are due behind `due`, or behind
    that without the name of the base model."""
    ends = (end for end in (due, due.partition(".")[2]) if f".{front}".endswith(f".{end}"))
    return front.removesuffix(next(ends, front))
