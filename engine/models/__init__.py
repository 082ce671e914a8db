"""A model from its name to memory, and the masks that prune it.

`architectures`: where heads and FFNs live in each family
`names`: how a model is typed: `demo`, a folder, a hub id with its revision, a run with its snapshot
`runs`: runs of training as places where models lie
`hub`: models of the hub: what is here, what it takes to have one, the download
`fetching`: the process that fetches
`checkpoints`: what a model folder is, read from its files alone
`config_fields`: which fields of a config.json are used
`weight_files`: which files of a folder hold the weights
`layer_tensors`: which tensor is what of a layer, and where a head lies in it
`headers`: what these hold, from their tables of contents
`sizes`: how many parameters that is, as a whole and part by part
`opt_sizes`: the sizes in which OPT was published
`outlines`: a model's shape and parts, known before any weight is there
`operations`: how many operations passes take, and what they hold
`hardware`: GPUs by name, with what their makers say of them
`allotment`: where the parts of a model would lie on devices, and what each would hold
`tensors`: the tensors of a checkpoint, each read when it is asked for
`small`: small models trained here that no class of transformers is
`spread`: a folder that the form `small` of an export wrote, as the stock model that it is of
`whole`: whether those are the tensors that the config asks for
`torch_internals`: private and fragile parts of torch
`transformers_internals`: the same of transformers
`bitsandbytes_internals`: the same of bitsandbytes
`accelerate_internals`: the same of accelerate
`hub_internals`: the same of huggingface_hub
`memory_needed`: what a load needs of the memory that there is
`placing`: where the layers of a model larger than one device lie: on GPUs, in main memory, on disk
`set_aside`: layers that lie on disk, as files that are mapped
`reaching`: weights that are brought to the device that they are read on
`loading`: from a name to a model in memory; one at a time, or two that are compared, refused where it cannot fit
`session`: the model that is measured (`Target`), and where: one store, one model in memory (`Session`)
`masks`: what is kept of a model, as text people can type, and applied to it
`slicing`: pruned parts not computed at all
`last_layer`: a last layer computed only where it is read
`patterns`: attention patterns while the model runs
`weights`: weights of heads and of the unembedding, from any precision
`kinds`: the ways of matrix products
`cpu_products`: bf16 and int8 layers by the products that this processor is fastest at
`tuning`: which way this machine is faster, measured once
`rates`: how fast a model is on this machine, from what it has done so far
`pace`: how fast a device is at any model, from such rates, else from what its maker says
"""
