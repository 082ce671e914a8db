"""Attention patterns, induction scores and ablation of single heads.

`induction`: six induction scores of every head, through the store
`probes`: probe inputs for induction heads, and the scores of one batch of them
`circuits`: heads by their weights alone: scores, the heads that feed one, the tokens that one raises
`ablation`: heads ablated one by one, fully or with patterns preserved
`fills`: accuracy with other outputs of pruned components than 0
`last_token`: predictions with one head replaced at the last tokens of a prompt, or the stream changed at one layer
`entity_induction`: token and concept induction of every head, through the store
`function_vectors`: function-vector scores of every head, through the store
`patching`: what activations of one prompt change in another, by layer and position or head
`vector_switch`: whether a function vector, added to the residual stream, makes the model do a task
`vector_prompt`: the likeliest next tokens of a prompt with a function vector added at each layer
`copy_suppression`: how much every head lowers tokens that the model is about to repeat, through the store
`retrieval`: whether every head looks at what the model copies from far back, through the store
`idealized`: heads with their attention pattern replaced by an ideal one, and how much of their effect remains
`attention`: attention patterns of all heads on a text, and what they add to the next token's logit
`logit_lens`: the likeliest next tokens after each layer, and the probability of the actual one
`direct_paths`: what each component adds to a logit
`in_text`: one head on a text and on random tokens: its attention, and the tokens it raises there
"""
