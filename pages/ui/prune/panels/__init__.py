"""Collapsible panels below the figure of Prune.

`questions`: the questions themselves, with both models' answers
`costs`: savings of a mask, and tokens a second, as a panel
`perplexity`: the second figure: perplexity of a text under the same mask
`exports`: the pruned model as a folder
"""
