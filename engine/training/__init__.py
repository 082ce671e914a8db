"""Training of small models, and measurements along a run.

`findings`: what Olsson et al. say of training, and whether it holds here
`folders`: a run as a folder, read without torch
`live`: training in a separate process while the app runs
`locking`: one process at a time
`measuring`: a run or a published series, measured at every snapshot
`model`: the small model while it is trained, its rows and its log, and what running takes of a kind of model
`phase_change`: where in-context learning appears, and what changes there
`recipe`: what a run is made by, and recipes by name
`running`: training itself, from wherever it was stopped
`snapshot_losses`: one snapshot's losses on rows of tokens, and the same without each head
`snapshots`: the model as a folder that every screen opens
`text`: training text and held-out text of a run
`trajectory`: which snapshots belong together, and what was measured at each, as a file
"""
