"""Importance scores, pruning orders and estimates.

`scores`: scores of heads and FFNs, through the store
`activity`: gate gradients, one backward pass per choice; statistics of heads and FFNs on questions, one forward pass
each, and of their weights
`layers`: the pruning order of whole layers: block influence, the oracle, the greedy search
`criteria`: the table of criteria, with the functions that compute their scores
`knockouts`: scores of heads from answers under random masks, by a sparse linear fit
`rankings`: levels, and agreement between rankings
`rules`: the table of pruning orders
`orders`: from a level and a ranking to a mask
`estimates`: first-order estimates of the effect of pruning, and the errors to expect, from the measured levels
"""
