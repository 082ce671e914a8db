"""How many operations passes take, counted from a model's shape: a multiplication and an addition are two.

What is counted is what `engine.accuracy.passes` computes: rows end to end without padding but in attention, the last
layer's output projection and FFN and the unembedding only where something is read, gradients that pass back to inputs
alone and no further than the first layer's heads. Norms, sums and activations are under a hundredth of that, and yet
take time: they are counted by the values that they make.
"""

from dataclasses import astuple, dataclass
from operator import add

from engine.checkpoints.model_config import ModelConfig
from engine.placement.pass_memory import TokenCounts

# of 12 a layer and d_model in OPT: all have a gradient, of which some are sums (12 + 4); what attention reads is made
# fp32 and back on either way (4 + 7), and so are z, the FFN's output and their products for scores (6): twice the bytes
GRADIENT_VALUES = (12 + 4 + 2 * (4 + 7 + 6)) / 12
REMADE = 3 / 8  # of a value's time, which is read and written in 16 bits twice: read in 8 bits, written in 16


@dataclass(frozen=True)
class Operations:
    """Operations by what is multiplied: the `matrices` of the layers, which int8 multiplies in 8 bits, `attention` and
    the unembedding as the `head`, and gradients `back` through all three. `values` are no operations: what layers make
    of their inputs, each to be read and written; `back_values` what gradients add, which int8 does not quantise;
    `remade` the weights that gradients pass back through, once a pass: int8 makes 16 bits of each."""

    matrices: float = 0.0
    attention: float = 0.0
    head: float = 0.0
    back: float = 0.0
    values: float = 0.0
    back_values: float = 0.0
    remade: float = 0.0

    @property
    def total(self) -> float:
        return self.matrices + self.attention + self.head + self.back

    def __add__(self, other: "Operations") -> "Operations":
        return Operations(*map(add, astuple(self), astuple(other)))

    def times(self, n: float) -> "Operations":
        """Those of n such passes."""
        return Operations(*(each * n for each in astuple(self)))


def forward(model: ModelConfig, reading: TokenCounts, heads_left: float = 1.0, ffns_left: float = 1.0) -> Operations:
    """Operations of forward passes; of a pruned model where these shares (0-1) of the heads and FFNs are left, spread
    evenly over the layers."""
    n, shape, (qkv, out, ffn) = reading.tokens, model.shape, _matrices(model)
    behind = _behind_heads(model, reading)
    matrices = heads_left * (shape.n_layers * n * qkv + behind * out) + ffns_left * behind * ffn
    attention = heads_left * shape.n_layers * reading.pairs * model.d_heads
    head = reading.places * shape.n_vocab * model.d_embedding
    in_heads, in_ffns = 2 * (model.d_heads + model.d_key_values), (3 if model.is_gated else 1) * shape.d_mlp
    values = heads_left * shape.n_layers * n * in_heads + behind * (4 * shape.d_model + ffns_left * in_ffns)
    return Operations(2 * (matrices + 2 * n * _projection(model)), 4 * attention, 2 * head, values=values)


def gradient(model: ModelConfig, reading: TokenCounts, passes: float = 1.0) -> Operations:
    """Operations of forward and backward passes, so many for what is read, to every layer's heads and FFN; the backward
    pass of attention takes five products, since its pattern is made anew."""
    there, n, (qkv, out, ffn) = forward(model, reading), reading.tokens, _matrices(model)
    above = model.shape.n_layers - 1  # what lies below the first layer's heads takes no part
    matrices = above * n * qkv + _behind_heads(model, reading) * (out + ffn) + n * _projection(model)
    attention = above * reading.pairs * model.d_heads
    back = 2 * matrices + 10 * attention + there.head
    values, remade = GRADIENT_VALUES * there.values, passes * (above * (qkv + out + ffn) + out + ffn)
    return Operations(there.matrices, there.attention, there.head, back, there.values, values, remade)


def _matrices(model: ModelConfig) -> tuple[int, int, int]:
    """Weights of a layer's matrices: those of queries, keys and values, that behind the heads, and the FFN's."""
    d = model.shape.d_model
    ffn = (3 if model.is_gated else 2) * d * model.shape.d_mlp
    return d * (model.d_heads + 2 * model.d_key_values), model.d_heads * d, ffn


def _behind_heads(model: ModelConfig, reading: TokenCounts) -> float:
    """Positions at which what follows the heads is computed, those of all layers together."""
    return reading.tokens * (model.shape.n_layers - 1) + reading.places


def _projection(model: ModelConfig) -> int:
    """Weights between the embeddings' width and d_model, of each of two projections."""
    return 0 if model.d_embedding == model.shape.d_model else model.d_embedding * model.shape.d_model
