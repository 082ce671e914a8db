"""All computation, usable from Python and the shell; independent of the screens.

`accuracy`: answers under a mask, and what a mask saves
`requests`: requests as data, one class for each command
`cli`: the command line
`demo`: the embedded model, questions and passages
`export`: pruned models as folders
`corpus`: heads over a whole corpus
`heads`: patterns, induction and ablation of heads
`importance`: scores, rankings and estimates
`architecture`: model families and shapes
`kernels`: matrix products on this processor
`checkpoints`: a model as files
`placement`: placement of layers on devices
`models`: loaded models and masks
`timing`: throughput on this machine
`questions`: tasks, and their questions as text and tokens
`studies`: measurements over tasks, levels and orders
`distributed`: measurements whose parts the workers of Ray measure
`views`: results as they are presented
`training`: training of small models, and measurements along a run
`texts`: losses token by token, and in-context learning

`errors`: exceptions whose text is shown to users
`files`: files named by a user: bounded reads, atomic writes; which process holds a folder
`jobs`: the jobs of all tabs, as pages ask for them
`lanes`: the measuring thread and the reading thread
`measurement`: a value that is read from stored records, measured, or forecast
`composed`: measurements made of other measurements
`memory`: bounded caches, and freed memory returned to the system
`pieces`: one stored record, and how it is measured
`progress`: progress of long work
`receipts`: how stored numbers were measured, and whether a stored result can be decoded
`records`: stored records, their codec and keys
`shapes`: names of axes, and `ModelShape`
`slots`: jobs as the tabs of the app hold them
`turns`: whose turn it is when several tabs have jobs
`shipped`: records of the embedded model that come with the package
`statistics`: intervals and tests
`__main__`: `python -m engine`, the same as `headroom`
"""
