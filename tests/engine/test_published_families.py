"""Published models of each family, known by their config.json: counted as transformers counts them, and what Headroom
cannot open says why."""

import pytest

from engine.architecture.families import FAMILIES
from engine.architecture.family import family_of, shape_of
from engine.architecture.model_config import ModelConfig
from engine.architecture.transformers_internals import causal_lm_class, model_config
from engine.errors import HeadroomError
from pages.ui.controls.model import MODELS, TO_TRY
from tests.engine.fixtures import configured, family_folder, loaded, refused_by

LLAMA_3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192}  # fmt: skip
# what their config.json says, and the number of parameters that the model's page says
PUBLISHED = {
    "facebook/opt-125m": (
        {"model_type": "opt", "vocab_size": 50272, "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12,
         "num_attention_heads": 12, "max_position_embeddings": 2048, "word_embed_proj_dim": 768}, 125_239_296),
    "openai-community/gpt2": (
        {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024},
        124_439_808),
    "EleutherAI/gpt-neo-125m": (
        {"model_type": "gpt_neo", "vocab_size": 50257, "hidden_size": 768, "num_layers": 12, "num_heads": 12,
         "intermediate_size": None, "max_position_embeddings": 2048, "window_size": 256,
         "attention_types": [[["global", "local"], 6]]}, 125_198_592),
    "EleutherAI/gpt-j-6b": (
        {"model_type": "gptj", "vocab_size": 50400, "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048,
         "n_inner": None, "rotary_dim": 64, "tie_word_embeddings": False}, 6_050_882_784),
    "EleutherAI/pythia-70m": (
        {"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 512, "intermediate_size": 2048,
         "num_hidden_layers": 6, "num_attention_heads": 8, "max_position_embeddings": 2048, "rotary_pct": 0.25,
         "tie_word_embeddings": False}, 70_426_624),
    "bigscience/bloom-560m": (
        {"model_type": "bloom", "vocab_size": 250880, "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16,
         "n_inner": None, "seq_length": 2048, "apply_residual_connection_post_layernorm": False, "pretraining_tp": 1},
        559_214_592),
    "mosaicml/mpt-7b": (
        {"model_type": "mpt", "vocab_size": 50432, "d_model": 4096, "n_layers": 32, "n_heads": 32, "max_seq_len": 2048,
         "expansion_ratio": 4, "no_bias": True, "logit_scale": None, "learned_pos_emb": True,
         "attn_config": {"alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "clip_qkv": None, "qk_ln": False,
                         "attn_type": "multihead_attention", "prefix_lm": False}}, 6_649_286_656),
    "tiiuae/falcon-7b": (
        {"model_type": "falcon", "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32,
         "num_attention_heads": 71, "num_kv_heads": 71, "multi_query": True, "parallel_attn": True, "bias": False,
         "new_decoder_architecture": False, "alibi": False}, 6_921_720_704),
    "tiiuae/falcon-40b": (
        {"model_type": "falcon", "vocab_size": 65024, "hidden_size": 8192, "num_hidden_layers": 60,
         "num_attention_heads": 128, "num_kv_heads": 8, "multi_query": True, "parallel_attn": True, "bias": False,
         "new_decoder_architecture": True, "alibi": False}, 41_303_293_952),
    "tiiuae/falcon-11B": (
        {"model_type": "falcon", "vocab_size": 65024, "hidden_size": 4096, "num_hidden_layers": 60,
         "num_attention_heads": 32, "num_kv_heads": 8, "ffn_hidden_size": 16384, "max_position_embeddings": 8192,
         "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1, "rope_theta": 500042.0, "bias": False,
         "tie_word_embeddings": False}, 11_102_822_400),
    "mistralai/Mistral-7B-v0.1": (
        {"model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "max_position_embeddings": 32768, "sliding_window": 4096, "tie_word_embeddings": False}, 7_241_732_096),
    "Qwen/Qwen2.5-0.5B": (
        {"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
         "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
         "max_position_embeddings": 32768, "sliding_window": 32768, "use_sliding_window": False,
         "tie_word_embeddings": True}, 494_032_768),
    "Qwen/Qwen3-0.6B-Base": (
        {"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
         "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
         "max_position_embeddings": 32768, "rope_theta": 1000000, "tie_word_embeddings": True}, 596_049_920),
    "HuggingFaceTB/SmolLM3-3B-Base": (
        {"model_type": "smollm3", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008,
         "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
         "max_position_embeddings": 32768, "rope_theta": 2000000.0, "no_rope_layer_interval": 4,
         "no_rope_layers": [1, 1, 1, 0] * 9, "use_sliding_window": False, "sliding_window": None,
         "tie_word_embeddings": True}, 3_075_098_624),
    "allenai/OLMo-2-0425-1B": (
        {"model_type": "olmo2", "vocab_size": 100352, "hidden_size": 2048, "intermediate_size": 8192,
         "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
         "max_position_embeddings": 4096, "rope_theta": 500000, "tie_word_embeddings": False}, 1_484_916_736),
    "allenai/OLMo-2-0325-32B": (
        {"model_type": "olmo2", "vocab_size": 100352, "hidden_size": 5120, "intermediate_size": 27648,
         "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
         "max_position_embeddings": 4096, "rope_theta": 500000, "tie_word_embeddings": False}, 32_234_279_936),
    "allenai/Olmo-3-1025-7B": (
        {"model_type": "olmo3", "vocab_size": 100278, "hidden_size": 4096, "intermediate_size": 11008,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
         "max_position_embeddings": 65536, "sliding_window": 4096, "rope_theta": 500000,
         "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192,
                          "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0},
         "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 8, "tie_word_embeddings": False},
        7_298_011_136),
    "ibm-granite/granite-3.1-2b-base": (
        {"model_type": "granite", "vocab_size": 49155, "hidden_size": 2048, "intermediate_size": 8192,
         "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
         "max_position_embeddings": 131072, "attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
         "logits_scaling": 8.0, "residual_multiplier": 0.22, "tie_word_embeddings": True}, 2_533_531_648),
    "bigcode/starcoder2-3b": (
        {"model_type": "starcoder2", "vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288,
         "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2,
         "max_position_embeddings": 16384, "sliding_window": 4096, "use_bias": True}, 3_030_371_328),
    "google/gemma-2b": (
        {"model_type": "gemma", "vocab_size": 256000, "hidden_size": 2048, "intermediate_size": 16384,
         "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
         "max_position_embeddings": 8192, "hidden_act": "gelu"}, 2_506_172_416),
    "microsoft/phi-1_5": (
        {"model_type": "phi", "vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192,
         "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": None,
         "max_position_embeddings": 2048, "partial_rotary_factor": 0.5, "qk_layernorm": False,
         "tie_word_embeddings": False}, 1_418_270_720),
    "stabilityai/stablelm-3b-4e1t": (
        {"model_type": "stablelm", "vocab_size": 50304, "hidden_size": 2560, "intermediate_size": 6912,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
         "max_position_embeddings": 4096, "partial_rotary_factor": 0.25, "use_qkv_bias": False,
         "tie_word_embeddings": False}, 2_795_443_200),
    "stabilityai/stablelm-2-1_6b": (
        {"model_type": "stablelm", "vocab_size": 100352, "hidden_size": 2048, "intermediate_size": 5632,
         "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 32,
         "max_position_embeddings": 4096, "partial_rotary_factor": 0.25, "use_qkv_bias": True,
         "tie_word_embeddings": False}, 1_644_515_328),
    "CohereForAI/aya-23-8B": (
        {"model_type": "cohere", "vocab_size": 256000, "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "max_position_embeddings": 8192, "logit_scale": 0.0625, "use_qk_norm": False}, 8_028_033_024),
    "microsoft/Phi-3-mini-4k-instruct": (
        {"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "pad_token_id": 32000,
         "max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "sliding_window": 2047,
         "rope_scaling": None, "tie_word_embeddings": False}, 3_821_079_552),
    "microsoft/Phi-4-mini-instruct": (
        {"model_type": "phi3", "vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 8192,
         "num_hidden_layers": 32, "num_attention_heads": 24, "num_key_value_heads": 8, "pad_token_id": 199999,
         "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "sliding_window": 262144,
         "partial_rotary_factor": 0.75, "tie_word_embeddings": True,
         "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48}}, 3_836_021_760),
    "google/gemma-2-2b": (
        {"model_type": "gemma2", "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
         "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
         "max_position_embeddings": 8192, "sliding_window": 4096, "query_pre_attn_scalar": 256,
         "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}, 2_614_341_888),
    "google/gemma-3-270m": (
        {"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 640, "intermediate_size": 2048,
         "num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
         "max_position_embeddings": 32768, "sliding_window": 512, "query_pre_attn_scalar": 256,
         "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "use_bidirectional_attention": False,
         "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3}, 268_098_176),
    "google/gemma-3-1b-pt": (
        {"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912,
         "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
         "max_position_embeddings": 32768, "sliding_window": 512, "sliding_window_pattern": 6,
         "query_pre_attn_scalar": 256, "rope_theta": 1000000, "rope_local_base_freq": 10000}, 999_885_952),
    "meta-llama/Llama-3.2-1B": (
        {"model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192,
         "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
         "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": LLAMA_3,
         "tie_word_embeddings": True, "eos_token_id": [128001, 128008, 128009]}, 1_235_814_400),
}  # fmt: skip


@pytest.fixture(scope="module")
def meta_model():
    """A function that gives transformers' model of a config.json, without weights."""
    import torch

    def made(config):
        whole = model_config(config)
        with torch.device("meta"):
            return causal_lm_class(whole)(whole)

    return made


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_is_counted_as_transformers_counts_it(name, meta_model):
    config, n_params = PUBLISHED[name]
    model, family = meta_model(config), family_of(config)
    parts, layers = ModelConfig(name, config).parts, family.layer_list(model)
    assert parts.n_params == model.num_parameters() == n_params
    assert {sum(each.numel() for each in layer.parameters()) for layer in layers} == {parts.layer.n_params}
    matrices = [
        each.weight for each in layers[0].modules() if type(each).__name__ in ("Linear", "Conv1D", "FalconLinear")
    ]
    assert parts.layer.n_quantized == sum(each.numel() for each in matrices)
    outputs = int(family.attention.packing == "joined")  # GPT-2's matrices hold (inputs, outputs)
    assert parts.layer.n_outputs == sum(each.shape[outputs] for each in matrices)


def test_the_layers_without_positions_are_those_of_transformers():
    config = {"model_type": "smollm3", "num_hidden_layers": 9}
    by_layer = FAMILIES["smollm3"].by_layer
    assert by_layer is not None
    for said in ({}, {"no_rope_layer_interval": 2}, {"no_rope_layers": [0, 1, 1] * 3}, {"no_rope_layers": [1] * 12}):
        found = by_layer(config | said)["no_rope_layers"]
        assert found == model_config(config | said).no_rope_layers[:9] and len(found) == 9


@pytest.mark.parametrize("kind", ["gemma2", "gemma3_text", "olmo3"])
def test_the_layers_with_a_window_are_those_of_transformers(kind):
    config, by_layer = {"model_type": kind, "num_hidden_layers": 13}, FAMILIES[kind].by_layer
    assert by_layer is not None
    patterns = [{"sliding_window_pattern": 3}] * (kind != "olmo3")
    for said in ({}, *patterns, {"layer_types": ["full_attention"] * 13}):
        assert by_layer(config | said)["layer_types"] == model_config(config | said).layer_types


@pytest.mark.parametrize("said", [{"no_bias": False}, {"attn_config": {"qk_ln": True}},
                                  {"attn_config": {"alibi_bias_max": 16}}])  # fmt: skip
def test_an_mpt_model_that_transformers_computes_otherwise_is_refused(said):
    config = PUBLISHED["mosaicml/mpt-7b"][0] | said
    refused_by(HeadroomError, "MPT models are read with", lambda: shape_of(config))


@pytest.mark.parametrize("said", [{"alibi": True}, {"parallel_attn": False}])
def test_a_falcon_model_of_its_smallest_series_is_refused(said):
    config = PUBLISHED["tiiuae/falcon-7b"][0] | said
    refused_by(HeadroomError, "Falcon models are read with", lambda: shape_of(config))


def test_every_family_has_a_published_model():
    published = {config["model_type"] for config, _ in PUBLISHED.values()}
    assert published == {kind for kind, family in FAMILIES.items() if family.is_stock}


def test_the_bar_offers_a_small_model_of_each_family_with_its_download():
    stock = [family for family in FAMILIES.values() if family.is_stock]
    assert len({family.models or family.name for family in stock}) == len(TO_TRY) == len(stock), (
        "each has models of its own"
    )
    assert {*TO_TRY} <= {*MODELS} and all(0 < gigabytes < 17 for gigabytes in TO_TRY.values())


SCALED = {
    "llama3": LLAMA_3 | {"original_max_position_embeddings": 64},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "longrope": {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0, 1.2, 2.0, 3.0],
                 "long_factor": [2.0] * 4, "original_max_position_embeddings": 256},
}  # fmt: skip


@pytest.mark.parametrize("kind", SCALED)
def test_scaled_positions_are_those_of_transformers_bit_for_bit(kind, tiny_opt, tmp_path):
    """As configs of transformers 4 and 5 spell them."""
    import torch
    from transformers import AutoModelForCausalLM

    folder = family_folder("llama", tiny_opt, tmp_path / "model", rope_parameters=SCALED[kind] | {"rope_theta": 1e4},
                           max_position_embeddings=1024)  # fmt: skip
    found, ids = {}, torch.arange(2, 202)[None]
    for changes in ({}, {"rope_parameters": None, "rope_scaling": SCALED[kind], "rope_theta": 1e4}):
        configured(folder, **changes)
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.inference_mode():
            found[len(changes)] = loaded(folder).model(ids).logits
            assert torch.equal(found[len(changes)], theirs(ids).logits)
    assert torch.equal(*found.values())


@pytest.mark.parametrize("name, n_ctx", [("microsoft/Phi-3-mini-4k-instruct", 4096),
                                         ("mistralai/Mistral-7B-v0.1", 32768), ("bigcode/starcoder2-3b", 16384),
                                         ("microsoft/Phi-4-mini-instruct", 4096),
                                         ("google/gemma-2-2b", 8192), ("google/gemma-3-270m", 32768)])  # fmt: skip
def test_the_context_ends_where_longrope_does_and_not_where_a_window_does(name, n_ctx):
    assert shape_of(PUBLISHED[name][0]).n_ctx == n_ctx


@pytest.mark.parametrize("spelled", ["rope_type", "type"])
def test_longrope_is_read_only_as_far_as_its_angles_stay_the_same(spelled):
    config = PUBLISHED["meta-llama/Llama-3.2-1B"][0]
    assert shape_of(config).n_ctx == 131072, "llama3 scaling does not depend on the length of the input"
    long = {spelled: "longrope", "short_factor": [1.0] * 32, "long_factor": [2.0] * 32}
    assert shape_of(config | {"rope_scaling": long, "original_max_position_embeddings": 4096}).n_ctx == 4096
    assert shape_of(config | {"rope_scaling": long | {"original_max_position_embeddings": 2048}}).n_ctx == 2048
    both = {"rope_scaling": long, "rope_parameters": {"rope_type": "default"}}
    assert shape_of(config | both | {"original_max_position_embeddings": 4096}).n_ctx == 4096
    gemma = PUBLISHED["google/gemma-3-270m"][0]
    by_type = {"full_attention": long | {"original_max_position_embeddings": 2048}}
    assert shape_of(gemma | {"rope_parameters": by_type}).n_ctx == 2048
    phi = PUBLISHED["microsoft/Phi-4-mini-instruct"][0]
    assert shape_of({name: each for name, each in phi.items() if "original" not in name}).n_ctx == 4096


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "qwen3_moe", "num_experts": 128}, "'qwen3_moe' is a mixture of experts"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "'t5' has an encoder and a decoder"),
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, "'gemma3' also reads images"),
        ({"model_type": "mamba"}, "'mamba' is not supported"),
    ],
)
def test_an_architecture_that_cannot_be_opened_says_why(config, said):
    assert "use a model of type" in refused_by(HeadroomError, said, lambda: family_of(config))
