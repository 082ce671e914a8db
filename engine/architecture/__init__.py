"""Model families: modules, parameters and shapes, from config.json.

`families`: where heads and FFNs live in each family, a module each
`family`: a model's family and shape, and which fields of its config.json are used
`layer_tensors`: which tensor is what of a layer, and where a head lies in it
`miniature`: a small random model of the same config as a large one
`model_config`: what a config.json says of a model: its shape, its parts and their parameters; and the sizes of OPT
`modeling_headroom`: small models trained here that no class of transformers is
`torch_internals`: private and fragile parts of torch
`transformers_internals`: the same of transformers
`unverified`: models of other types whose layout is that of Llama, recognized from one pass
"""
