"""Per-token losses, perplexity, continuations and in-context scores of texts.

`passages`: texts that a user brings, checked and remembered
`tokenloss`: the loss of each token under any mask, in windows that overlap
`perplexity`: of a text by the standard recipe, and what a mask changes of it
`incontext`: in-context-learning score, and loss by index
`continuation`: the likeliest next tokens after a prompt, and what a model says next
`sources`: where the texts to measure them on come from
"""
