"""Per-token losses, perplexity, continuations and in-context scores of texts.

`passages`: user texts, checked and remembered, and sources of texts to measure on
`tokenloss`: the loss of each token under any mask, in overlapping windows
`perplexity`: perplexity of a text by the standard recipe, and its change by a mask
`incontext`: in-context score, and loss by index
`continuation`: the likeliest next tokens after a prompt, and a continuation
"""
