"""Models as files: names, downloads, conversions, validation, tensors.

`names`: how a model is typed: `demo`, a folder, a GGUF file, a hub id with its revision, a run with its snapshot
`hub`: Hub models: which are here, what a download takes, the download
`hub_internals`: private and fragile parts of huggingface_hub
`fetching`: the process that downloads
`weight_files`: which files of a folder hold the weights
`tensor_index`: what these hold, from their tables of contents
`tensor_names`: names in the files of wrapped models, and those that tell that weights are not plain
`tensors`: the tensors of a checkpoint, each read when it is asked for
`compact_checkpoint`: a folder that the form `small` of an export wrote, as the stock model that it is of
`gguf_header`: what a GGUF file says of itself, and why one cannot be read
`gguf_internals`: private and fragile parts of transformers and gguf that read GGUF files
`gguf_config`: the config of the model in a GGUF file
`conversion`: a GGUF file as a model folder, written once
`validation`: whether the tensors are those that the config asks for
`tokenizer`: the tokenizer of a folder, and what it puts in front of a text
`identity`: what a model folder is, read from its files alone
`config_lookup`: the config of a model by name, whether or not its weights are here
"""
