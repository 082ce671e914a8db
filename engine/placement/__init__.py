"""Memory forecasts, and placement of layers on GPUs, main memory and disk.

`devices`: the class of device that measures here
`free_memory`: free memory of GPUs, main memory and disk
`needs`: what a model needs of memory
`pass_memory`: what the largest passes of a study need
`placement`: where the layers of a model larger than one device go
`hardware`: GPUs by name, with what their makers say of them
`disk_offload`: layers on disk, as files that are mapped
`offload`: weights that are brought to the device that they are read on
`accelerate_internals`: private and fragile parts of accelerate
"""
