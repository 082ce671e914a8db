"""Importance screen: scores of heads and FFNs for many tasks and shot counts.

`sections`: maps, means and the comparison with the oracle, drawn
`tables`: one row per head or FFN, and sentences
`charts`: maps, means and scatters
"""
