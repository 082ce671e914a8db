"""Loaded models, and the masks that prune them.

`loading`: from a name to a model in memory, refused where it cannot fit
`in_memory`: the models in memory: the one that is measured, and others that open tabs show where they fit
`self_check`: whether heads, FFNs and layers of a model are where they are pruned
`session`: the model that is measured (`Target`), and where: one store, the models in memory (`Session`)
`masks`: masks as text and as hooks on a model
`slicing`: pruned parts not computed at all, nor a last layer where nothing is read from it
`patterns`: attention patterns while the model runs
`weights`: weights of heads and of the unembedding, from any precision
`added_vector`: a function vector that is added to the residual stream before one layer
"""
