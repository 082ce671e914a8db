"""All computation, usable from Python and the shell; independent of the screens.

`accuracy`: questions answered under a mask, and what a mask saves
`requests`: what is asked of the engine, as data: a class for each command
`cli`: the command line
`demo`: the embedded model, questions and passages
`export`: a pruned model as a folder that others load
`heads`: what single heads look at and do
`importance`: scores, rankings and estimates
`architecture`: what models are made of
`kernels`: matrix products on this processor
`checkpoints`: a model as files
`placement`: where the parts of a model go
`models`: models in memory, and what prunes them
`timing`: how long work takes here
`questions`: tasks, and their rows as text and as tokens
`studies`: the same over many tasks, levels and rankings
`plans`: a study as cells that many processes measure
`training`: small models trained from nothing, and what is measured along the way
`texts`: losses token by token, and in-context learning

`errors`: the exceptions whose one line people see
`files`: files that a user names, read with a bound and written whole
`jobs`: the one worker thread, and what it tells whoever looks
`measurement`: a value that is read from stored records, measured, or forecast
`composed`: measurements made of other measurements
`memory`: what is kept is bounded, and what is freed goes back to the system
`pieces`: one stored record, and how it is measured
`process_marks`: which process holds a folder
`progress`: what long work tells of itself
`readable`: whether a stored result can be decoded
`receipts`: how the numbers that are read were measured
`records`: what is stored, its codec and its keys
`shapes`: the axis glossary, and `ModelShape`
`statistics`: how large a change can be
`__main__`: `python -m engine`, the same as `headroom`
"""
