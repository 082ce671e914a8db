"""Attention of the models whose classes in transformers compute it by themselves (`Family.is_adapted`), adapted so that
it is looked up by name as in all others: packed passes and patterns register functions of their own. Under the name
`eager` these classes compute what they always have.

Read in transformers 5.23; each has a test in tests/engine/test_library_internals.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache as once
from typing import TYPE_CHECKING, Any

from engine.architecture.torch_internals import replace_class
from engine.architecture.transformers_internals import attention_chooser

if TYPE_CHECKING:
    from torch import Tensor

OWN = "eager"


def adapt_attention(modules: Iterable[Any]) -> None:
    """Has these attention modules of a model look up what they attend by."""
    for number, module in enumerate(modules):
        module.layer_idx = number  # GPT-Neo calls it otherwise
        replace_class(module, _adapted(type(module)))


@once
def _adapted(attention: Any) -> Any:
    """A class that is `attention` but for `_attn`, which gives (z (B, H, T, d_head), pattern)."""
    choose = attention_chooser()

    class Adapted(attention):
        def _attn(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None) -> tuple[Tensor, Any]:
            if self.config._attn_implementation == OWN:
                return super()._attn(query, key, value, attention_mask)
            window = self.config.window_size if getattr(self, "attention_type", "") == "local" else None
            if window is not None and attention_mask is not None:
                attention_mask = attention_mask.masked_fill(~self.bias[..., : query.shape[2], : key.shape[2]], -3e38)
            scaling = 1 / getattr(self, "scale_attn", 1.0)  # GPT-Neo does not scale
            z, pattern = choose(self.config)(
                self, query, key, value, attention_mask, scaling=scaling, sliding_window=window
            )
            return z.transpose(1, 2), pattern

    return Adapted
