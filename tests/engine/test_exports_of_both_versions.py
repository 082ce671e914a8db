"""Exports name only what transformers 4 and 5 both know: read with the rules of both, they say the same.

Version 4 is not installed. Its rules are written down here, as 4.57 has them.
"""

import copy
import json

import pytest
import transformers

from engine.architecture.families import FAMILIES
from engine.architecture.family import known_fields
from engine.export.exporting import Export, config_of_both, export, tokenizer_settings_of_both
from engine.models.masks import parse_mask
from engine.progress import final
from tests.engine.fixtures import SIZES, STOCK, TINY, in_turns, target_in

NAMES_OF_4 = {"gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}}
DEFAULTS_OF_4 = {"gpt_neox": {"partial_rotary_factor": 0.25}, "phi": {"partial_rotary_factor": 0.5},
                 "stablelm": {"partial_rotary_factor": 0.25}, "gemma3_text": {"rope_theta": 1e6}}  # fmt: skip
CLASSES_OF_4 = ("PreTrainedTokenizerFast", "GPT2Tokenizer", "LlamaTokenizer", "Qwen2Tokenizer")
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 16}  # fmt: skip
LONG = {"rope_type": "longrope", "short_factor": [1.5, 1.0], "long_factor": [4.0, 3.0]}
ROPES = {
    "base": {"rope_type": "default", "rope_theta": 500.0},
    "scaled": {"rope_type": "linear", "factor": 4.0, "rope_theta": 700.0},
    "llama 3": LLAMA_3 | {"rope_theta": 5e5},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4},
}
LAYERS = {"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 700.0},
          "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}  # fmt: skip
ROTARY = [name for name in STOCK if "rope_parameters" in FAMILIES[TINY[name]].fields]


def config_of_5(kind, name, rope):
    """What transformers 5 writes into config.json."""
    usual = {FAMILIES[kind].own_name(field): value for field, value in SIZES.items()}
    said = usual | dict(FAMILIES[kind].tiny[name]) | {"rope_parameters": copy.deepcopy(rope), "dtype": "bfloat16"}
    return known_fields(transformers.AutoConfig.for_model(kind, **said).to_dict())


def rope_of_5(config):
    """The positions of a config.json as transformers 5 reads them."""
    found = transformers.AutoConfig.for_model(**copy.deepcopy(config)).rope_parameters
    return {name: value for name, value in found.items() if name != "type"}  # the older name of rope_type


def rope_of_4(config):
    """The positions of a config.json by the rules of version 4: (base, rotated part, scaling, base with a window)."""
    kind = config["model_type"]
    names, defaults = NAMES_OF_4.get(kind, {}), {"rope_theta": 1e4} | DEFAULTS_OF_4.get(kind, {})
    theta, part = (config.get(names.get(name, name), defaults.get(name)) for name in
                   ("rope_theta", "partial_rotary_factor"))  # fmt: skip
    return theta, part, config.get("rope_scaling"), config.get("rope_local_base_freq", 1e4)


CASES = [case for case in in_turns(ROTARY, ROPES) if case[0] != "phi3"]  # which takes no other scaling than its own
CASES += [("phi3", "base"), ("phi3", "long"), ("gemma3", "layers"), ("phi", "part"), ("gpt_neox", "part")]


@pytest.mark.parametrize(("name", "rope"), CASES)
def test_both_versions_read_the_same_positions(name, rope):
    kind, is_by_layer = TINY[name], name in ("gemma3", "olmo3")
    wanted = {**ROPES, "layers": LAYERS, "long": LONG | {"rope_theta": 700.0},
              "part": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.5}}[rope]  # fmt: skip
    if is_by_layer and rope != "layers":
        wanted = {"full_attention": wanted, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}
    config = config_of_5(kind, name, wanted)
    both = config_of_both(config)
    assert config.items() <= both.items() and rope_of_5(both) == rope_of_5(config)
    theta, part, scaling, local = rope_of_4(both)
    whole = config["rope_parameters"].get("full_attention", config["rope_parameters"])
    assert theta == whole["rope_theta"] and part in (None, whole.get("partial_rotary_factor"))
    if whole["rope_type"] == "default":
        assert scaling is None
    elif kind == "phi3" and rope == "long":
        assert scaling == {"type": "longrope", "short_factor": LONG["short_factor"], "long_factor": LONG["long_factor"]}
    else:
        assert scaling == {name: whole[name] for name in whole if name not in ("rope_theta", "partial_rotary_factor")}
    if kind == "gemma3_text":
        assert local == config["rope_parameters"]["sliding_attention"]["rope_theta"]
    assert both["torch_dtype"] == both["dtype"] == "bfloat16"


@pytest.mark.parametrize("name", STOCK)
def test_a_config_of_version_4_stays_as_it_is(name):
    config = {"model_type": TINY[name], "rope_theta": 300.0, "torch_dtype": "float16", "hidden_size": 32}
    assert config_of_both(config) == config


SETTINGS = {
    "generic": {"tokenizer_class": "TokenizersBackend", "backend": "tokenizers", "is_local": True},
    "listed": {"tokenizer_class": "GPT2Tokenizer", "extra_special_tokens": ["<x>", "<y>"], "local_files_only": True},
    "named": {"tokenizer_class": "Qwen2Tokenizer", "image_token": "<x>",
              "model_specific_special_tokens": {"image_token": "<x>"}},
    "of version 4": {"tokenizer_class": "LlamaTokenizerFast", "additional_special_tokens": ["<x>"]},
    "in Python": {"tokenizer_class": "PythonBackend"},
}  # fmt: skip


@pytest.mark.parametrize("kind", SETTINGS)
def test_tokenizer_settings_are_those_of_both_versions(kind, tiny_opt, tmp_path):
    plain = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings = plain | SETTINGS[kind]
    found = tokenizer_settings_of_both(settings, is_fast=True)
    assert found["tokenizer_class"].removesuffix("Fast") in {name.removesuffix("Fast") for name in CLASSES_OF_4}
    assert isinstance(found.get("extra_special_tokens", {}), dict), "version 4 takes names only"
    assert not found.keys() & {"backend", "is_local", "local_files_only", "model_specific_special_tokens"}
    assert (found == settings) == (kind == "of version 4")
    read = []
    for number, each in enumerate((settings, found)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "tokenizer.json").write_bytes((tiny_opt / "tokenizer.json").read_bytes())
        (tmp_path / str(number) / "tokenizer_config.json").write_text(json.dumps(each))
        config = transformers.AutoConfig.for_model("llama")
        read.append(transformers.AutoTokenizer.from_pretrained(str(tmp_path / str(number)), config=config))
    text = "a long <x> road </s><y>"
    assert read[0](text)["input_ids"] == read[1](text)["input_ids"]
    assert read[0].special_tokens_map == read[1].special_tokens_map
    assert read[0].all_special_tokens == read[1].all_special_tokens


@pytest.mark.parametrize("form", ["masked", "small", "even"])
def test_an_export_names_what_both_versions_know(form, folder_of, tiny_opt, tmp_path, session):
    target = target_in(session, folder_of("llama"))
    base = folder_of("llama")
    transformers.AutoTokenizer.from_pretrained(str(tiny_opt)).save_pretrained(base)  # as version 5 writes it
    mask = parse_mask("B1", target.shape)
    folder = final(export(session, target, Export(mask, str(tmp_path / "out"), form=form))).folder
    config = json.loads((folder / "config.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast" and "backend" not in settings
    if form == "small":  # which needs version 5, and says so
        assert "transformers 5 or newer" in (folder / "modeling_pruned.py").read_text()
    else:
        assert config["rope_theta"] == config["rope_parameters"]["rope_theta"]
    base_ids = transformers.AutoTokenizer.from_pretrained(str(base))("a long road")["input_ids"]
    again = transformers.AutoTokenizer.from_pretrained(str(folder), trust_remote_code=form == "small")
    assert again("a long road")["input_ids"] == base_ids
