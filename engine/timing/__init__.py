"""How long work takes here.

`workload`: how much there is to read for the answers to questions, in characters
`observed_timings`: how fast a model is on this machine, from what it has done so far
`operations`: how many operations passes take
`throughput`: how fast a device is at any model, from such timings, else from what its maker says
"""
