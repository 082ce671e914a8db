"""Weights that were saved from inside a wrapper load as those of the model inside; weights that are not plain are said
to be what they are.
"""

from itertools import cycle, islice, product

import pytest
import torch
from safetensors.torch import load_file

from engine.errors import HeadroomError
from engine.export import exporting
from engine.models.loading import LoadSpec, identify
from engine.models.masks import parse_mask
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import DISTINCT, bare, loaded, refused_by
from tests.engine.test_checkpoints_that_are_not_whole import save, save_shards

TOKENS = torch.tensor([[2, 40, 41, 99, 300]])


def in_front(prefix):
    return lambda name, base: prefix + name


def inside(prefix):
    """In place of the base model's name, as models of images and text have it, whose unembedding has none."""
    return lambda name, base: prefix + name.removeprefix(base) if name.startswith(base) else name


def in_layers(wrapper):
    return lambda name, base: name.replace(".0.", f".0.{wrapper}.")


WRAPPERS = {
    "compiled": in_front("_orig_mod."),
    "parallel": in_front("module."),
    "parallel and compiled": in_front("module._orig_mod."),
    "PEFT": in_front("base_model.model."),
    "PEFT, parallel": in_front("module.base_model.model."),
    "images": in_front("language_model."),
    "images, new": inside("model.language_model."),
    "inner model compiled": inside("model._orig_mod."),
    "base model alone": inside("module."),
    "twice the base": in_front("model."),
    "any": in_front("state_dict.my_policy."),
    "layers compiled": in_layers("_orig_mod"),
    "FSDP": lambda name, base: "_fsdp_wrapped_module." + in_layers("_fsdp_wrapped_module")(name, base),
    "checkpointing": in_layers("_checkpoint_wrapped_module"),
}
FILES = {
    ".safetensors": lambda tensors, folder: save(tensors, folder / "model.safetensors"),
    ".bin": lambda tensors, folder: save(tensors, folder / "pytorch_model.bin"),
    ".bin of torch 1.5": lambda tensors, folder: torch.save(
        tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False
    ),
    "shards": lambda tensors, folder: save_shards(tensors, folder, ".safetensors", index=False),
    "shards of .bin": lambda tensors, folder: save_shards(tensors, folder, ".bin"),
}


def base_of(folder):
    """The name of the base model in the names of a folder's tensors, with its dot."""
    return next(name for name in load_file(folder / "model.safetensors") if ".0." in name).partition(".")[0] + "."


def wrapped(plain, folder, wrapper, write=FILES[".safetensors"], change=dict):
    """A copy of the plain folder with other names in its files."""
    tensors, base = load_file(plain / "model.safetensors"), base_of(plain)
    bare(plain, folder)
    write(change({WRAPPERS[wrapper](name, base): value for name, value in tensors.items()}), folder)
    return folder


def in_turns_together(*lists):
    """Every combination; unless thorough, each of every list at least once."""
    if IS_THOROUGH:
        return [*product(*lists)]
    return [*islice(zip(*map(cycle, lists), strict=False), max(map(len, lists)))]


@pytest.mark.parametrize(("family", "wrapper", "files"), in_turns_together(DISTINCT, WRAPPERS, FILES))
def test_weights_from_inside_a_wrapper_are_those_of_the_model(family, wrapper, files, folder_of, model_of, tmp_path):
    folder = wrapped(folder_of(family), tmp_path / "wrapped", wrapper, FILES[files])
    assert torch.equal(loaded(folder).model(TOKENS).logits, model_of(family).model(TOKENS).logits)


@pytest.mark.parametrize(("wrapper", "files"), in_turns_together(WRAPPERS, FILES))
def test_sizes_of_wrapped_weights_are_those_of_the_model(wrapper, files, folder_of, tmp_path):
    plain = identify(LoadSpec(str(folder_of("llama"))))
    found = identify(LoadSpec(str(wrapped(folder_of("llama"), tmp_path / "wrapped", wrapper, FILES[files]))))
    assert (found.n_params, found.shape) == (plain.n_params, plain.shape)
    mask = parse_mask("L0H0-1 L1H0-1 L2H2-3", plain.shape)
    for form in ("masked", "small", "even") if files != ".bin of torch 1.5" else ():
        assert exporting.sizes(found, mask, form) == exporting.sizes(plain, mask, form)


def without(part):
    return lambda tensors: {name: value for name, value in tensors.items() if part not in name}


def two(tensors):
    return {f"{model}.{name}": value.clone() for model in ("policy", "reference") for name, value in tensors.items()}


@pytest.mark.parametrize(("wrapper", "change", "said"), [
    ("parallel", without("layers.1.mlp.up"), ["up_proj.weight is missing", "begin with 'module.'", "save_pretrained"]),
    ("images, new", without("norm"), ["is missing", "begin with 'model.language_model.'"]),
    ("any", two, ["begin with 'policy.state_dict.my_policy.' and 'reference.state_dict.my_policy.'"]),
    ("parallel", lambda tensors: tensors | {"lm_head.weight": tensors["module.lm_head.weight"] + 1},
     ["lm_head.weight and module.lm_head.weight are both the model's lm_head.weight; keep one"]),
    ("parallel", lambda tensors: tensors | {"module.v_head.weight": torch.ones(2)}, ["no place for v_head.weight"]),
])  # fmt: skip
def test_wrapped_weights_that_are_not_whole_say_how_to_save_them(wrapper, change, said, folder_of, tmp_path):
    folder = wrapped(folder_of("llama"), tmp_path / "wrapped", wrapper, change=change)
    line = refused_by(HeadroomError, ".", lambda: loaded(folder))
    assert all(part in line for part in said) and " again" not in line, line


UP = "model.layers.1.mlp.up_proj"
ONES = torch.ones(4, 4)


def beside(*names, kind=torch.float32):
    """Tensors of these names in addition."""
    return lambda tensors: tensors | {name: ONES.to(kind).clone() for name in names}


def quantized(kind, *names):
    """One matrix in another type, with these tensors beside it."""
    return lambda tensors: beside(*names)(tensors | {f"{UP}.weight": torch.ones_like(tensors[f"{UP}.weight"]).to(kind)})


KINDS = {
    "LoRA": (beside(f"{UP}.lora_A.weight", f"{UP}.lora_B.weight"), "an adapter that was not merged; merge it"),
    "LoRA in PEFT": (
        lambda tensors: {"base_model.model." + name.replace("up_proj.", "up_proj.base_layer."): value
                         for name, value in beside(f"{UP}.lora_A.default.weight")(tensors).items()},
        "an adapter that was not merged; merge it"),
    "8 bit": (quantized(torch.int8, f"{UP}.SCB", f"{UP}.weight_format"), "8-bit weights that bitsandbytes wrote"),
    "int8 alone": (quantized(torch.int8), "is of type int8 and should be of floating point; Headroom reads plain"),
    "4 bit": (quantized(torch.uint8, f"{UP}.weight.absmax", f"{UP}.weight.quant_map",
                        f"{UP}.weight.quant_state.bitsandbytes__nf4"), "4-bit weights that bitsandbytes wrote"),
    "GPTQ": (beside(f"{UP}.qweight", f"{UP}.qzeros", f"{UP}.scales", f"{UP}.g_idx"), "GPTQ or AWQ quantized"),
    "fp8": (quantized(torch.float8_e4m3fn, f"{UP}.weight_scale_inv"), "quantized weights, such as those in 8-bit"),
    "compressed": (beside(f"{UP}.weight_packed", f"{UP}.weight_shape"), "quantized weights"),
    "FSDP": (beside("model.layers.1._flat_param"), "a shard that FSDP wrote; gather the whole model"),
    "optimizer": (beside(f"{UP}.weight.exp_avg"), "the state of an optimizer; save the model's weights"),
    "Meta": (lambda tensors: {"tok_embeddings.weight": ONES, "layers.2.attention.wq.weight": ONES.clone()},
             "named as in the files of Meta and Mistral AI"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "files"), in_turns_together(KINDS, FILES))
def test_weights_that_are_not_plain_are_said_to_be_what_they_are(kind, files, folder_of, tmp_path):
    change, said = KINDS[kind]
    folder = bare(folder_of("llama"), tmp_path / "other")
    FILES[files](change(load_file(folder_of("llama") / "model.safetensors")), folder)
    line = refused_by(HeadroomError, ".", lambda: loaded(folder))
    assert said in line and " again" not in line, line
