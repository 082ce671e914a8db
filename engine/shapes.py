"""The axis glossary: every array and docstring uses exactly these words.

layer     one transformer block, 0 is nearest the tokens          L = n_layers
head      one attention head of a layer (a query head)            H = n_heads
ffn       the feed-forward branch of a layer, one a layer         L
question  one row of a task, in dataset order unless said         n
choice    one possible continuation of a question                 C, padded with nan
position  one token of a model's input                            T
d_model   width of the residual stream; d_head the width of one head's output z; d_mlp the FFN's inner width

Arrays over heads are (layer, head), arrays over FFNs are (layer,); a flat head index is layer * n_heads + head.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """Sizes of one model, all counts of elements; `n_ctx` is the longest input in tokens."""

    n_layers: int
    n_heads: int
    n_key_value_heads: int
    d_model: int
    d_head: int
    d_mlp: int
    n_vocab: int
    n_ctx: int

    @property
    def n_heads_total(self) -> int:
        return self.n_layers * self.n_heads

    @property
    def head_names(self) -> list[str]:
        """`L0H0`, `L0H1`, ... by flat head index."""
        return [f"L{layer}H{head}" for layer in range(self.n_layers) for head in range(self.n_heads)]
