"""Attention patterns, induction scores and ablation of single heads.

`induction`: six induction scores of every head, through the store
`probes`: the inputs that show induction heads, and what one batch of them says
`circuits`: what the weights of heads say alone
`ablation`: heads ablated one by one, fully or with patterns preserved
`idealised`: heads with the pattern that their name says, and what is left of their effect
`attention`: what heads look at in a text, and what that adds to the next token's logit
`direct_paths`: what each part of a model adds to a logit
`in_text`: one head on a text and on random tokens: where it looks, and which of all tokens it raises there
`ov_tokens`: which tokens a head raises where it looks at one, by its weights alone
`composition`: which earlier heads feed a head's keys, by weights alone
"""
