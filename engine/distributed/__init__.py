"""Measurements whose parts the workers of Ray measure, on this computer or on a cluster.

`driver`: what is missing is given to workers, and what they measured goes into the store
`worker`: holds one model, and measures calls of the engine
`clusters`: a cluster of Ray, and how many workers it has room for
`ray_internals`: private and fragile parts of Ray
"""
