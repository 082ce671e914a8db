"""StarCoder2: Llama's shape with FFNs of two matrices and with biases everywhere, in norms too. A window is that of all
layers.
"""

from engine.architecture.families import llama
from engine.architecture.families.definition import ToTry, window_everywhere

FAMILY = llama.FAMILY.derived(
    name="StarCoder2",
    to_try=ToTry("bigcode/starcoder2-3b", 12.1),
    ffn=("mlp.c_fc", "mlp.c_proj"),
    without={"attention_bias", "mlp_bias", "pretraining_tp", "rms_norm_eps"},
    also={"norm_epsilon", "sliding_window", "use_bias", "residual_dropout", "embedding_dropout"},
    is_tied=True,
    has_biases=True,
    attention_biases="use_bias",
    ffn_biases="use_bias",
    defaults={"num_key_value_heads": 2},
    windows=window_everywhere(),
    tiny={"starcoder2": {"num_key_value_heads": 2}},
)
