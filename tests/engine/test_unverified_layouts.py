"""Models of types that are in no table: those built like Llama are recognized, checked, and measured as the harness
does; all others are refused in one line. Code that a config.json names is never used."""

import json

import pytest
import torch
import transformers

from engine.architecture import unverified
from engine.architecture.families import FAMILIES
from engine.architecture.family import family_of, known_fields, shape_of
from engine.architecture.transformers_internals import model_config
from engine.errors import HeadroomError, UsageError
from engine.export.forms import small
from engine.models import masks, self_check
from engine.models.in_memory import Models
from engine.models.loading import LoadSpec, identify
from engine.models.masks import Mask, pruned
from engine.models.self_check import check_model, fault_of
from engine.questions.rendering import TaskSpec, render_questions
from tests.engine.fixtures import SIZES, configured, loaded, masks_of, refused_by, saved, write_questions, zeroed
from tests.engine.test_log_likelihoods_equal_the_harness import compare

# norms in front; an FFN without a gate; norms behind, of queries and keys too, and a window; biases of projections
OPEN = {"helium": {"head_dim": 8}, "arcee": {}, "exaone4": {"sliding_window": 64, "num_hidden_layers": 4},
        "seed_oss": {"head_dim": 8}}  # fmt: skip
REFUSED = {"diffllama": "attention also has lambda_q1", "nanochat": "its FFN reads something else",
           "bitnet": "attention also has attn_sub_norm", "mamba": "its layers have no attention",
           "glm": "its layers have no FFN", "nonsense": "'nonsense' is not supported;"}  # fmt: skip
TOKENS = torch.tensor([[2, 40, 41, 99, 300, 17, 40, 41]])


def config_of(kind, **changes):
    sizes = SIZES | {"num_key_value_heads": 2, "pad_token_id": 0} | changes
    return transformers.AutoConfig.for_model(kind, **sizes)


def folder_of(kind, tiny_opt, to, **changes):
    torch.manual_seed(1)
    config = config_of(kind, **OPEN.get(kind, {}) | changes)
    return saved(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval(), to, tiny_opt)


def test_these_types_are_in_no_table():
    assert not {*OPEN, *REFUSED} & {*FAMILIES}


@pytest.mark.filterwarnings("ignore")  # the harness's and its libraries' own
@pytest.mark.parametrize("kind", OPEN)
def test_a_type_built_like_llama_passes_the_checks_and_scores_as_the_harness_does(kind, tiny_opt, tmp_path):
    model = loaded(folder_of(kind, tiny_opt, tmp_path / "model"))
    assert model.family.name == model.identity.family == f"{kind} (unverified layout)"
    assert fault_of(check_model(model)) == ""
    file = write_questions(tmp_path / "task.jsonl", 8)
    for shots in (0, 2):  # with two examples rows are longer than the window
        compare(model, render_questions(TaskSpec(str(file), shots)).questions, bos=False)
    for mask in masks_of(model.identity.shape):
        with torch.no_grad(), pruned(model, mask):
            masked = model.model(TOKENS).logits
        assert torch.allclose(masked, zeroed(model, mask)(TOKENS).logits, atol=1e-5)


def test_the_layout_is_found_by_what_modules_read():
    helium, exaone = (family_of(config_of(kind, **OPEN[kind]).to_dict()) for kind in ("helium", "exaone4"))
    assert (helium.norms, helium.ffn_out) == (("input_layernorm", "post_attention_layernorm"), "mlp")
    assert (exaone.norms, exaone.norms_after) == (
        ("", ""), ("post_attention_layernorm", "post_feedforward_layernorm"))  # fmt: skip
    assert exaone.qk_norms == ("q_norm", "k_norm") and not exaone.norms_all_heads
    assert family_of(config_of("arcee").to_dict()).ffn_read == ("mlp.up_proj",)


STATED = ("layers", "attention", "ffn_in", "ffn_out", "ffn", "norms", "norms_after", "qk_norms",
          "norms_all_heads", "norm_offset", "norm", "token_embedding")  # fmt: skip


def test_what_is_recognized_of_known_families_is_what_their_modules_say():
    tiny = {kind: next(iter(family.tiny.values())) for kind, family in FAMILIES.items() if family.is_stock}
    found = {kind: unverified.recognized(config_of(kind, **fields).to_dict()) for kind, fields in tiny.items()}
    like = {kind: family for kind, family in found.items() if not isinstance(family, str)}
    assert len(like) >= 6, found
    for kind, family in like.items():
        for name in STATED:
            assert getattr(family, name) == getattr(FAMILIES[kind], name), (kind, name)


@pytest.mark.parametrize("kind", REFUSED)
def test_a_type_that_is_built_otherwise_is_refused_with_the_reason(kind):
    refused_by(HeadroomError, REFUSED[kind], lambda: family_of({"model_type": kind, "num_key_value_heads": 2, **SIZES}))


def test_a_model_that_fails_the_check_is_not_opened(tiny_opt, tmp_path, monkeypatch):
    folder = folder_of("helium", tiny_opt, tmp_path / "model")
    self_check._checked_copy.cache_clear()
    real = masks._instead_of_heads
    monkeypatch.setattr(masks, "_instead_of_heads", lambda kept, *rest: real(kept[1:] + kept[:1], *rest))
    refused_by(HeadroomError, "helium .unverified layout. was not recognized correctly .pruned head equals",
               lambda: Models().get(LoadSpec(str(folder), "fp32")))  # fmt: skip
    self_check._checked_copy.cache_clear()


def test_what_names_code_is_not_used_and_a_window_limits_no_context(tiny_opt, tmp_path):
    folder = folder_of("exaone4", tiny_opt, tmp_path / "model")
    configured(folder, auto_map={"AutoModelForCausalLM": "evil.Evil"}, attn_implementation="someone/kernel",
               _attn_implementation="someone/kernel", use_kernels=True)  # fmt: skip
    config = identify(LoadSpec(str(folder))).config
    assert not {"auto_map", "attn_implementation", "_attn_implementation", "use_kernels"} & {
        *config,
        *known_fields(config),
    }
    assert "someone" not in json.dumps(model_config(config).to_dict()) and shape_of(config).n_ctx == 256


def test_the_form_small_does_not_know_its_code(tiny_opt, tmp_path):
    identity = identify(LoadSpec(str(folder_of("arcee", tiny_opt, tmp_path / "model"))))
    refused_by(UsageError, "use --form masked", lambda: small(identity, {}, Mask.full(identity.shape)))
