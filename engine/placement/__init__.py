"""Memory that a model needs, and placement of layers on GPUs, main memory and disk.

`devices`: the class of device that measures here, and free memory
`needs`: what a model needs of memory
`placement`: where the layers of a model larger than one device go
`summary`: what a model takes on this computer, in lines
`disk_offload`: layers on disk, as files that are mapped
`accelerate_internals`: weights that are brought to the device that they are read on, by private and fragile parts of
accelerate
"""
