"""The Importance screen: scores of heads and FFNs over many tasks and shot counts.

`tables`: one row a head or FFN, and sentences
`charts`: maps, means and scatters
"""
