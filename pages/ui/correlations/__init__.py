"""Correlations screen: how well importance agrees between tasks and shot counts.

`sections`: matrices that can be clicked, two rankings in detail, shot counts
`tables`: every two tasks, every two shot counts, in rows and sentences
`transfer`: what pruning by another task's order costs
`charts`: matrices and a scatter of ranks
"""
