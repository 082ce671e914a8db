"""Each field of a config.json that changes which tokens are visible, positions or scales is read as transformers reads
it: for inputs longer than windows and than the length before scaling, packed or not, log-likelihoods equal those of
transformers' own model of the folder. What Headroom does not read, it refuses in one line."""

import copy
import json
from contextlib import nullcontext
from dataclasses import fields as fields_of
from functools import lru_cache

import numpy as np
import pytest
import torch
import transformers

from engine.accuracy.passes import compute_prefix, hidden_states, passes
from engine.accuracy.scoring import score_under
from engine.architecture.families import FAMILIES
from engine.architecture.families.definition import ROTARY
from engine.architecture.family import known_fields, shape_of, windows_of
from engine.architecture.miniature import random_model
from engine.architecture.transformers_internals import model_config
from engine.errors import HeadroomError
from engine.models.loading import LoadSpec, identify
from engine.questions.encoding import Encoded, Row
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import SIZES, STOCK, TINY, family_folder, finished, in_turns, loaded, refused_by

S, F, GLOBAL, LOCAL = "sliding_attention", "full_attention", "global", "local"
MIXED = [F, S, S]
WINDOW, N, N_SHARED = 24, 96, 40  # N tokens, of which questions share some
EVERYWHERE = [{"sliding_window": WINDOW}, {"sliding_window": None}, {"sliding_window": 1}]
SWITCHED = [{"use_sliding_window": on, "sliding_window": WINDOW, "max_window_layers": first, "layer_types": types}
            for on, first, types in ((True, 1, None), (True, 0, MIXED), (False, 0, None))]  # fmt: skip
TYPED = [{"sliding_window": WINDOW, "layer_types": types} for types in (MIXED, [F] * 3, [S] * 3, None)]
WINDOWS = {
    "mistral": EVERYWHERE, "phi3": EVERYWHERE, "starcoder2": EVERYWHERE, "qwen2": SWITCHED, "qwen3": SWITCHED,
    "smollm3": [{"use_sliding_window": on, "sliding_window": WINDOW, "no_rope_layers": [1, 0, 0], "layer_types": types}
                for on, types in ((True, None), (False, MIXED), (False, None))],
    "gemma2": TYPED, "olmo3": TYPED, "gemma3_text": [*TYPED, {"sliding_window_pattern": 3, "layer_types": None}],
    "gpt_neo": [{"window_size": 10}, {"attention_layers": [GLOBAL, LOCAL, LOCAL]},
                {"attention_types": [[[GLOBAL], 3]], "attention_layers": [GLOBAL] * 3}],
}  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 4.0}
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 32}  # fmt: skip
OLD = {"rope_parameters": None}
ROPES = [
    OLD | {"rope_theta": 300.0},
    OLD | {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 300},
    OLD | {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    OLD | {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
    {"rope_parameters": LLAMA_3 | {"rope_theta": 300.0}},
    {"rope_parameters": LINEAR, "rope_scaling": LLAMA_3},
]
PARTIAL = [{"rope_parameters": LINEAR | {"rope_theta": 300.0, "partial_rotary_factor": 0.5}},
           OLD | {"partial_rotary_factor": 0.5}]  # fmt: skip
LONG = [OLD | {"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 64},
        {"rope_parameters": {"rope_type": "longrope", "rope_theta": 300.0, "original_max_position_embeddings": 48}},
        {"rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 32},
         "original_max_position_embeddings": 64, "rope_parameters": None}]  # fmt: skip
WITHIN = {"original_max_position_embeddings": 64}
BY_TYPE = [{"rope_parameters": {F: LINEAR | {"rope_theta": 300.0}, S: {"rope_type": "default", "rope_theta": 30.0}}},
           OLD | {"rope_theta": 300.0, "rope_scaling": LINEAR}]  # fmt: skip
POSITIONS = {
    "phi3": [OLD | WITHIN | {"rope_scaling": {"type": kind} | WITHIN} for kind in ("su", "yarn", "longrope")],
    "gemma3_text": [*BY_TYPE, OLD | {"rope_local_base_freq": 77.0, "rope_theta": 50}], "olmo3": BY_TYPE,
    "phi": [*ROPES, *LONG, *PARTIAL], "stablelm": [*PARTIAL, *LONG],
    "gpt_neox": [*PARTIAL, *LONG, OLD | {"rotary_pct": 0.5, "rotary_emb_base": 300}], "gptj": [{"rotary_dim": 2}],
}  # fmt: skip
CAPS = [{"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}, {"query_pre_attn_scalar": 2},
        {"attn_logit_softcapping": None, "final_logit_softcapping": None}]  # fmt: skip
SCALES = {
    "gemma2": CAPS, "gemma3_text": CAPS, "cohere": [{"logit_scale": 0.7}],
    "mpt": [{"attn_config": {"softmax_scale": 1.0}}],
    "gpt2": [{"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": True}],
    "granite": [{"attention_multiplier": 0.9, "logits_scaling": 3.0, "residual_multiplier": 0.2}],
}  # fmt: skip


def others_of(kind):
    """What a config.json of this type may say of positions and scales."""
    rotary = ROTARY - {"head_dim", "intermediate_size", "hidden_act", "partial_rotary_factor"} <= FAMILIES[kind].fields
    return [*POSITIONS.get(kind, [*ROPES, *LONG] if rotary else []), *SCALES.get(kind, [])]


def cases():
    """Every variant of every family; unless thorough, a window and another one of each family, in turns."""
    found = []
    for number, family in enumerate(STOCK):
        windows, others = WINDOWS.get(TINY[family], []), others_of(TINY[family])
        few = [each[number % len(each)] for each in (windows, others) if each]
        found += [(family, each) for each in ([*windows, *others] if IS_THOROUGH else few)]
    return found


@lru_cache
def plain_folder(family, tiny_opt, root):
    return family_folder(family, tiny_opt, root / family)


@pytest.fixture(scope="module")
def folder_of(tiny_opt, tmp_path_factory):
    """A function that gives a family's folder with these changes in its config.json."""
    root = tmp_path_factory.mktemp("families")

    def made(family, **changes):
        folder = plain_folder(family, tiny_opt, root)
        if not (folder / "plain.json").exists():
            (folder / "config.json").rename(folder / "plain.json")
        plain = json.loads((folder / "plain.json").read_text())
        (folder / "config.json").write_text(json.dumps(plain | with_factors(plain, changes)))
        return folder

    return made


def with_factors(plain, changes):
    """The changes, with as many factors for longrope as it asks for."""
    changes = copy.deepcopy(changes)
    for rope in (changes.get("rope_scaling"), changes.get("rope_parameters")):
        kind = (rope or {}).get("rope_type", (rope or {}).get("type"))
        if kind in ("longrope", "su") or (kind == "yarn" and plain["model_type"] == "phi3"):
            share = {"phi": 0.5, "phi3": 0.5, "stablelm": 0.25, "gpt_neox": 0.25}.get(plain["model_type"], 1.0)
            n = int(8 * share) // 2
            rope |= {"short_factor": [1.0 + at / 4 for at in range(n)], "long_factor": [3.0 + at for at in range(n)]}
    return changes


def theirs_of(folder):
    """transformers' own model of a folder."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def ids_of(seed, n):
    return torch.randint(3, 500, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def questions_of(n_ctx):
    """Questions of three choices, that begin alike; their contexts are as long as the model reads."""
    n, found = min(N, n_ctx), []
    for number in range(2):
        context = ids_of(0, min(N_SHARED, n - 20)) + ids_of(number + 1, 12 + number)
        context += ids_of(7 + number, n - len(context) - 3)
        choices = [tuple(ids_of(20 + 3 * number + choice, 1 + choice)) for choice in range(3)]
        found.append(
            [Encoded(number, at, tuple(context) + choice[:-1], choice, 0) for at, choice in enumerate(choices)]
        )
    return found


def log_likelihood(model, choice):
    """The same by one pass of transformers' model over one choice."""
    with torch.inference_mode():
        logits = model(torch.tensor([choice.inputs])).logits[0, -len(choice.targets) :]
    return float(logits.log_softmax(-1).gather(1, torch.tensor(choice.targets)[:, None]).sum())


@pytest.mark.parametrize("family, changes", cases(), ids=str)
def test_long_inputs_are_scored_as_transformers_does(family, changes, folder_of):
    folder = folder_of(family, **changes)
    ours, theirs = loaded(folder), theirs_of(folder)
    n_ctx = ours.identity.shape.n_ctx
    rope = getattr(theirs.config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        assert n_ctx == rope["original_max_position_embeddings"] < N
    elif TINY[family] not in ("bloom", "mpt"):
        assert n_ctx == theirs.config.max_position_embeddings > N
    questions = questions_of(n_ctx)
    expected = [[log_likelihood(theirs, choice) for choice in choices] for choices in questions]
    for some in (questions, questions[:1]):  # behind a prefix that is computed once, and without
        found, _ = finished(score_under(ours, some, nullcontext))
        np.testing.assert_allclose(found, expected[: len(some)], atol=2e-4)


@pytest.mark.parametrize("family, precision", in_turns([name for name in STOCK if TINY[name] in WINDOWS],
                                                       ["int8", "bf16"]))  # fmt: skip
def test_windows_are_those_of_transformers_in_other_precisions(family, precision, folder_of):
    """Rows longer than the window, alone and behind a prefix that is computed once; in int8 padded."""
    model = loaded(folder_of(family, **WINDOWS[TINY[family]][0]), precision)
    ids = ids_of(0, N)

    def row(n, first):
        """The tokens from `first` to n of one text, all of which are read."""
        positions = tuple(range(first, n))
        return Row((), tuple(ids[first:n]), positions, (0,) * (n - first), tuple((0, at, 0) for at in range(n - first)))

    with torch.inference_mode():
        for first, prefix in ((0, None), (10, compute_prefix(model, ids[:10]))):
            for groups in passes(model, [row(n, first) for n in (70, 12, 90)]):
                ends = [1 + each.positions[-1] for group in groups for each in group]
                plain = [model.model.base_model(torch.tensor([ids[:n]])).last_hidden_state[0, first:] for n in ends]
                torch.testing.assert_close(hidden_states(model, groups, prefix), torch.cat(plain), atol=0.2, rtol=0.2)


def config_of(family, **changes):
    kind = TINY[family]
    usual = {FAMILIES[kind].own_name(name): value for name, value in SIZES.items()}
    return known_fields({"model_type": kind, **usual, **FAMILIES[kind].tiny[family]} | changes)


OTHERS = {  # of fields that are lists or dicts, or say which of some names
    "layer_types": MIXED, "rope_parameters": LINEAR | {"rope_theta": 300.0}, "no_rope_layers": [0, 1, 1],
    "attention_types": [[[GLOBAL], 3]], "attn_config": {"clip_qkv": 0.5}, "attention_layers": [LOCAL] * 3,
}  # fmt: skip
BOOKKEEPING = {each.name for each in fields_of(transformers.PreTrainedConfig)} | {
    "use_cache", "bos_token_id", "eos_token_id", "pad_token_id"}  # fmt: skip


def other_values(config, declared, usual):
    """(field, another value of it) for each that transformers' class declares beyond bookkeeping."""
    for name in declared:
        value = config.get(name, getattr(usual, name, None))
        if name in OTHERS:
            yield name, OTHERS[name]
        elif isinstance(value, bool):
            yield name, not value
        elif isinstance(value, int | float):
            yield name, value * 2 or 1
        elif isinstance(value, str):
            yield name, "relu" if "act" in name else f"{value}x"
        elif value is None:
            yield from ((name, each) for each in (True, 3, 3.0))


@pytest.mark.parametrize("family", STOCK)
def test_each_field_that_transformers_declares_is_read_or_refused(family):
    """Or makes no difference: found from the class itself, so that a field of a later version is tried too."""
    made = transformers.CONFIG_MAPPING[TINY[family]]
    declared = [each.name for each in fields_of(made) if each.name not in BOOKKEEPING]
    plain, tried = config_of(family), 0
    values = [("is_causal", False), *other_values(plain, declared, made())]
    for name, value in values:
        config = copy.deepcopy(plain | {name: value})
        try:
            theirs = transformers.AutoConfig.for_model(**copy.deepcopy(config))
        except Exception:  # no value of this field
            continue
        tried += 1
        try:
            known = known_fields(config)
            shape, ours = shape_of(known), model_config(known)
        except HeadroomError as error:
            assert name in str(error) or "sliding_window" in str(error)
            continue
        sizes = {"num_attention_heads": shape.n_heads, "num_hidden_layers": shape.n_layers,
                 "hidden_size": shape.d_model, "num_key_value_heads": shape.n_key_value_heads}  # fmt: skip
        assert all(getattr(theirs, each, None) in (size, None) for each, size in sizes.items()), name
        told = {each: value for each, value in theirs.to_dict().items() if each not in BOOKKEEPING}
        if told != {each: value for each, value in ours.to_dict().items() if each in told}:
            difference(theirs, ours, name)
    assert tried > 8


def difference(theirs, ours, name):
    """Fails unless two models of these configs give the same logits with the same weights."""
    one, other = random_model(theirs), random_model(ours)
    stranger = other.load_state_dict(one.state_dict(), strict=False)
    assert not stranger.missing_keys, name
    if not stranger.unexpected_keys:  # a file with these is refused
        ids = torch.tensor([ids_of(0, 60)])
        with torch.inference_mode():
            torch.testing.assert_close(*(each(ids, use_cache=False).logits for each in (one, other)), msg=name)


@pytest.mark.parametrize("family", ["llama", "mpt"])
def test_a_model_whose_tokens_read_later_ones_is_refused(family, folder_of):
    folder = str(folder_of(family, is_causal=False))
    refused_by(HeadroomError, "is_causal is False, so that tokens read later", lambda: identify(LoadSpec(folder)))


@pytest.mark.parametrize("family", [name for name in STOCK if FAMILIES[TINY[name]].refused])
def test_refused_fields_are_refused_in_a_folder_too(family, folder_of):
    [field] = FAMILIES[TINY[family]].refused
    folder = folder_of(family, **{field: True})
    refused_by(HeadroomError, f"{field} is on", lambda: identify(LoadSpec(str(folder))))


@pytest.mark.parametrize("family", [name for name in STOCK if TINY[name] in WINDOWS and name != "gpt_neo"])
@pytest.mark.parametrize("window", [0, -1, "4096", True])
def test_a_window_that_makes_no_sense_is_refused(family, window):
    config = config_of(family, sliding_window=window, use_sliding_window=True, max_window_layers=0)
    config["no_rope_layers"] = [0, 0, 0]
    refused_by(HeadroomError, "sliding_window is .* must be a positive whole number", lambda: shape_of(config))


@pytest.mark.parametrize("family", [name for name in STOCK if "layer_types" in FAMILIES[TINY[name]].fields])
def test_types_of_layers_that_make_no_sense_are_refused(family):
    said = [config_of(family, layer_types=each) for each in ([S], "sliding", [F, "chunked_attention", F], [F, 3, S])]
    for config in said:
        with pytest.raises(
            HeadroomError, match="layer_types is .*reads a list of full_attention and sliding_attention"
        ):
            shape_of(config)
    refused_by(HeadroomError, "sliding_window is null or off",
               lambda: shape_of(config_of(family, layer_types=MIXED, sliding_window=None)))  # fmt: skip
    assert windows_of(config_of(family, layer_types=["attention"] * 3, sliding_window=8)) == ()


@pytest.mark.parametrize("name, value", [("n_embed", 48), ("hidden_size", 48)])
@pytest.mark.parametrize("family", ["bloom", "falcon"])
def test_two_names_of_one_size_say_the_same(family, name, value):
    config = config_of(family, n_embed=32, hidden_size=32)
    assert shape_of(config).d_model == 32
    refused_by(
        HeadroomError, "config.json says hidden_size .* which mean the same", lambda: shape_of(config | {name: value})
    )


def test_missing_windows_are_those_that_transformers_takes():
    for family, window in (("mistral", 4096), ("phi3", None), ("starcoder2", None), ("gemma2", 4096)):
        config = config_of(family)
        config.pop("sliding_window", None)
        assert next(iter(windows_of(config)), None) == window == model_config(config).sliding_window
        assert shape_of(config).n_ctx == config["max_position_embeddings"]
