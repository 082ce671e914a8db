"""CPU kernels for matrix products, and the choice of the fastest.

`cpu_kernels`: the ways of matrix products, and bf16 and int8 layers by the products that this processor is fastest at
`kernel_choice`: which kind is fastest on this machine, measured once
`bitsandbytes_internals`: private and fragile parts of bitsandbytes
"""
