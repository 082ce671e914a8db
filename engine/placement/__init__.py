"""Where the parts of a model go: GPUs, main memory, disk, and what each has room for.

`memory_needed`: what a load needs of the memory that there is
`pass_memory`: what passes take beside the weights
`placement`: where the layers of a model larger than one device go
`allotment`: the same for a machine that is described
`hardware`: GPUs by name, with what their makers say of them
`disk_offload`: layers on disk, as files that are mapped
`offload`: weights that are brought to the device that they are read on
`accelerate_internals`: private and fragile parts of accelerate
"""
