"""The Importance screen: scores of heads and FFNs over many tasks and shot counts.

`tables`: one row a head or FFN, and sentences
`beside`: a second model's scores beside the first's
`charts`: maps, means and scatters
"""
