"""Importance scores, pruning orders and estimates.

`importance`: scores of heads and FFNs, through the store
`criteria`: the table of ways to score them, in words, with what each costs
`gradients`: gate gradients, one backward pass a choice
`oracle`: the same questions without each head, FFN or layer in turn
`activity`: what heads and FFNs do on questions, one forward pass each
`magnitudes`: how large the weights of heads and FFNs are
`layers`: in what order whole layers go: block influence, the oracle, the greedy search
`rankings`: orders, levels, and how much rankings agree
`rankings_of`: from a level and a ranking to a mask
`head_sets`: the best induction heads ablated together, beside as many others at random
`estimates`: what pruning would do, to first order, without a forward pass
`calibration`: how far to trust the estimates, going by what was measured
"""
