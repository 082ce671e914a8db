"""Importance screen: scores of heads and FFNs for many tasks and shot counts.

`tables`: one row a head or FFN, and sentences
`divisors`: a line on how the last layer is divided
`beside`: a second model's scores beside the first's
`charts`: maps, means and scatters
"""
