"""Importance scores, pruning orders and estimates.

`importance`: scores of heads and FFNs, through the store
`criteria`: the table of criteria, with descriptions and costs
`gradients`: gate gradients, one backward pass per choice
`activity`: statistics of heads and FFNs on questions, one forward pass each, and of their weights
`layers`: the pruning order of whole layers: block influence, the oracle, the greedy search
`rankings`: orders, levels, and agreement between rankings
`rankings_of`: from a level and a ranking to a mask
`head_sets`: the best induction heads ablated together, compared with equally many random heads
`estimates`: first-order estimates of the effect of pruning, and the errors to expect, from the measured levels
"""
