"""Throughput measured on this machine, for time estimates.

`workload`: how much there is to read for the answers to questions, in characters
`observed_timings`: how fast a model is on this machine, from what it has done so far
"""
