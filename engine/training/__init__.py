"""Training of small models, and measurements along a run.

`batches`: the rows of one step
`findings`: what Olsson et al. say of training, and whether it holds here
`folders`: a run as a folder, read without torch
`live`: training in a separate process while the app runs
`locking`: one process at a time
`measuring`: a run or a published series, measured at every snapshot
`model`: the small model while it is trained, and what running takes of a kind of model
`phase_change`: where in-context learning appears, and what changes there
`recipe`: what a run is made by
`recipes`: recipes by name
`running`: training itself, from wherever it was stopped
`series`: which snapshots belong together
`snapshot_losses`: one snapshot's losses on rows of tokens, and the same without each head
`snapshots`: the model as a folder that every screen opens
`text`: training text and held-out text of a run
`trajectory`: what was measured at every snapshot, as a file
`watching`: a few quick measurements while it goes on
"""
