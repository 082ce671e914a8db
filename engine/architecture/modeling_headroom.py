"""Small models trained here that no class of transformers is: Llama but for smeared keys (Olsson et al.), or for
shortformer positions (Press et al.: sinusoids added to what queries and keys are made of, not to the stream).

The key of a token is `s k_j + (1 - s) k_{j-1}` with `s = sigmoid(smear)` of its head, mixed before any rotation; the
first token's is its own. In a cache lie keys as they are made, neither mixed nor turned: a new token's needs the one
before, and where the last read ended is known from positions alone.
"""

from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn

from engine.architecture.family import SMALL
from engine.architecture.transformers_internals import attention_chooser, llama_attention, replace_positions

POSITIONS = ("rotary", "shortformer")
attention_of = attention_chooser()


class HeadroomSmallConfig(transformers.LlamaConfig):
    model_type = SMALL

    smeared: bool = False
    positions: str = "rotary"

    def __post_init__(self, **kwargs: Any) -> None:
        if self.positions not in POSITIONS:
            raise ValueError(f"positions {str(self.positions)[:40]!r} in config.json; known are {', '.join(POSITIONS)}")
        super().__post_init__(**kwargs)


class Where(NamedTuple):
    """Of (B, T) tokens their `positions`, `before` the index in T of the token before (the first's own), and `first`
    and `second` (B, T, width): cosines and sines, or twice the addend to the input of queries and keys."""

    positions: Tensor
    before: Tensor
    first: Tensor
    second: Tensor


class Positions(nn.Module):
    """Where, once for all layers; stands where Llama has its rotary embedding."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.rotary = config.positions == "rotary"
        self.width = config.head_dim if self.rotary else config.hidden_size
        self.theta = float((config.rope_parameters or {}).get("rope_theta", 10_000.0))

    def forward(self, x: Tensor, position_ids: Tensor) -> Where:
        exponents = torch.arange(0, self.width, 2, device=position_ids.device).float() / self.width
        angles = position_ids[..., None].float() * (1.0 / self.theta**exponents)
        if self.rotary:
            both = torch.cat([angles, angles], -1)
            tables = both.cos(), both.sin()
        else:
            tables = (torch.cat([angles.sin(), angles.cos()], -1),) * 2
        first, second = (table.to(x.dtype) for table in tables)
        return Where(position_ids, tokens_before(position_ids), first, second)


class SmallAttention(llama_attention()):
    """Llama's attention with the two changes; whatever transformers attends by gets finished keys."""

    def __init__(self, config: Any, layer_idx: int, positions: Positions) -> None:
        super().__init__(config, layer_idx)
        self.rotary = config.positions == "rotary"
        self.where = [positions]  # a list: no module of its own
        self.smear = nn.Parameter(torch.zeros(config.num_key_value_heads)) if config.smeared else None

    def forward(
        self, hidden_states: Tensor, position_embeddings: Any = None, attention_mask: Any = None,
        past_key_values: Any = None, **kwargs: Any
    ) -> tuple[Tensor, Any]:  # fmt: skip
        where = position_embeddings
        read = hidden_states if self.rotary else hidden_states + where.first
        q, k, v = (
            made.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for made in (self.q_proj(read), self.k_proj(read), self.v_proj(hidden_states))
        )
        if self.rotary:
            q = turned(q, where)
        if self.smear is None:
            k = turned(k, where) if self.rotary else k
        if past_key_values is not None:
            k, v = past_key_values.update(k, v, self.layer_idx)
        if self.smear is not None:
            if k.shape[2] > q.shape[2]:
                where = self._whole(where, k.shape[2] - q.shape[2], hidden_states)
            k = smeared(k, self.smear, where.before)
            k = turned(k, where) if self.rotary else k
        attend = attention_of(self.config)
        z, pattern = attend(self, q, k, v, attention_mask, dropout=0.0, scaling=self.scaling, **kwargs)
        return self.o_proj(z.flatten(-2)), pattern

    def _whole(self, where: Where, n_before: int, x: Tensor) -> Where:
        """Where the tokens in the cache are too: right in front of the first that is read now."""
        first = where.positions[:, :1]
        behind = torch.arange(n_before, 0, -1, device=first.device)
        return self.where[0](x, torch.cat([(first - behind).clamp_min(0), where.positions], 1))


class HeadroomSmallForCausalLM(transformers.LlamaForCausalLM):
    config_class = HeadroomSmallConfig

    def __init__(self, config: HeadroomSmallConfig) -> None:
        super().__init__(config)
        positions = Positions(config)
        replace_positions(self, positions)
        for index, layer in enumerate(self.model.layers):
            layer.self_attn = SmallAttention(config, index, positions)
        self.post_init()


def register() -> None:
    """Has transformers' Auto classes know these models."""
    transformers.AutoConfig.register(SMALL, HeadroomSmallConfig, exist_ok=True)
    transformers.AutoModelForCausalLM.register(HeadroomSmallConfig, HeadroomSmallForCausalLM, exist_ok=True)


def tokens_before(positions: Tensor) -> Tensor:
    """(B, T): index of the token before each, in its own text; of a first token its own. Several texts may lie one
    behind the other, and the continuations of one text, each from where that ends: the token before is the last one
    with the position before."""
    index = torch.arange(positions.shape[1], device=positions.device).expand_as(positions)
    follows = torch.zeros_like(positions, dtype=torch.bool)
    follows[:, 1:] = positions[:, 1:] == positions[:, :-1] + 1
    found = index - follows.long()
    for row, at in (~follows & (positions > 0)).nonzero().tolist():
        earlier = (positions[row, :at] == positions[row, at] - 1).nonzero()
        if len(earlier):
            found[row, at] = earlier[-1, 0]
    return found


def smeared(keys: Tensor, alpha: Tensor, before: Tensor) -> Tensor:
    """Keys (B, H, T, d_head), each mixed with the one before; alpha (H,), `before` as of `tokens_before`."""
    earlier = keys.gather(2, before[:, None, :, None].expand(len(keys), *keys.shape[1:]))
    return torch.lerp(earlier, keys, torch.sigmoid(alpha.to(keys.dtype))[:, None, None])


def turned(x: Tensor, where: Where) -> Tensor:
    """Rotary positions, halves against halves, of (B, H, T, d_head)."""
    half = x.shape[-1] // 2
    other = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * where.first.unsqueeze(1) + other * where.second.unsqueeze(1)
