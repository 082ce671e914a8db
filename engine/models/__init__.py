"""Loaded models, and the masks that prune them.

`loading`: from a name to a model in memory; one at a time, or two that are compared, refused where it cannot fit
`session`: the model that is measured (`Target`), and where: one store, one model in memory (`Session`)
`masks`: masks as text and as hooks on a model
`slicing`: pruned parts not computed at all, nor a last layer where nothing is read from it
`patterns`: attention patterns while the model runs
`weights`: weights of heads and of the unembedding, from any precision
"""
