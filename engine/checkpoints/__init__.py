"""Models as files: names, downloads, validation, tensors.

`names`: how a model is typed: `demo`, a folder, a hub id with its revision, a run with its snapshot
`hub`: Hub models: which are here, what a download takes, the download
`hub_internals`: private and fragile parts of huggingface_hub
`fetching`: the process that downloads
`weight_files`: which files of a folder hold the weights
`tensor_index`: what these hold, from their tables of contents
`tensor_names`: names in the files of wrapped models, and those that tell that weights are not plain
`tensors`: the tensors of a checkpoint, each read when it is asked for
`compact_checkpoint`: a folder that the form `small` of an export wrote, as the stock model that it is of
`validation`: whether the tensors are those that the config asks for
`tokenizer`: the tokenizer of a folder, and what it puts in front of a text
`identity`: what a model folder is, read from its files alone
`config_lookup`: the config of a model by name, whether or not its weights are here
"""
