"""Memory that passes take beside the weights, counted from a model's shape."""

from dataclasses import dataclass

from engine.checkpoints.model_config import ModelConfig

READ_POSITIONS = 128  # positions whose logits scoring computes at once: 128 x 50,272 x 4 bytes = 26 MB
CACHED_POSITIONS = 8  # positions whose logits it converts to fp32 at once: 1.6 MB, which fit in the processor's cache


@dataclass(frozen=True)
class TokenCounts:
    """What passes read, a question or many (means may be fractions): `tokens` that are computed, `pairs` of a token and
    one that attention compares it with, padding and what is masked among them, `places` whose prediction is read."""

    tokens: float = 0.0
    pairs: float = 0.0
    places: float = 0.0

    def __add__(self, other: "TokenCounts") -> "TokenCounts":
        return TokenCounts(self.tokens + other.tokens, self.pairs + other.pairs, self.places + other.places)

    def times(self, n: float) -> "TokenCounts":
        """That of n such questions."""
        return TokenCounts(self.tokens * n, self.pairs * n, self.places * n)


def workspace_bytes(model: ModelConfig, precision: str, reading: TokenCounts) -> int:
    """Bytes that a forward pass over this holds at its peak beside the weights: the residual stream and the inside of
    an FFN, the masks of attention, and logits of the places that are read together."""
    size, shape = _size(precision), model.shape
    inside = 2 * size + (1 + 4 if precision == "int8" else 0)  # before and behind the activation; int8 in, int32 out
    tokens = reading.tokens * (3 * size * shape.d_model + inside * shape.d_mlp)
    logits = shape.n_vocab * (min(reading.places, READ_POSITIONS) * size + CACHED_POSITIONS * 4)
    return round(tokens + reading.pairs * (size + 2) + logits)


def kept_bytes(model: ModelConfig, precision: str, reading: TokenCounts, on_cpu: bool) -> int:
    """Bytes that a layer keeps of a forward pass until gradients pass back through it: what its norms and activations
    read, queries, keys, values and z, and what its FFN gives. On a CPU attention is in fp32 then; on a GPU int8 keeps
    what its matrices read too."""
    d, size = model.shape.d_model, _size(precision)
    widths = 3 * d + (3 if model.is_gated else 1) * model.shape.d_mlp + model.d_heads
    widths += 2 * d if precision == "int8" and not on_cpu else 0
    heads = 2 * model.d_heads + 2 * model.d_key_values
    return round(reading.tokens * (widths * size + heads * (4 if on_cpu else size)))


def gradient_bytes(model: ModelConfig) -> int:
    """Bytes of a layer's largest matrix, as int8 is made 16 bits for a gradient to pass through it, with the one that
    it is made of in between."""
    shape = model.shape
    return 2 * 2 * shape.d_model * max(shape.d_mlp, model.d_heads)


def _size(precision: str) -> int:
    return 4 if precision == "fp32" else 2
