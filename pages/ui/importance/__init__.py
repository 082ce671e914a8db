"""Importance screen: scores of heads and FFNs for many tasks and shot counts.

`sections`: maps, means and the comparison with the oracle, drawn
`tables`: one row per head or FFN, and sentences
`divisors`: a line on the divisor of the last layer
`by_weights`: the weight magnitude of heads, shown until a task is measured
`charts`: maps, means and scatters
"""
