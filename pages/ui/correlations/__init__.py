"""Correlations screen: how well importance agrees between tasks and shot counts.

`sections`: matrices and a map that can be clicked, two rankings in detail, shot counts
`tables`: every two tasks, every two shot counts, heads by the tasks that need them, in rows and sentences
`transfer`: accuracy by the orders of other tasks, as a measurement
`charts`: matrices, a map of heads, and a scatter of ranks
"""
