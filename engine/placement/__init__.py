"""Memory forecasts, and placement of layers on GPUs, main memory and disk.

`devices`: the class of device that measures here, free memory, and GPUs by name
`needs`: what a model needs of memory, also for the largest passes of a study
`placement`: where the layers of a model larger than one device go
`disk_offload`: layers on disk, as files that are mapped
`accelerate_internals`: weights that are brought to the device that they are read on, by private and fragile parts of
accelerate
"""
