"""Training screen: small models during training, and what forms in them.

`charts`: charts over training, with a marker that moves in the browser
`choosing`: the choice of runs, folder and axis
`finding`: which runs have a phase change, as sentences
`live`: training a model now, with charts that grow
`live_charts`: those charts
`loss_charts`: charts of losses, by run, by token and by index in the text
`measuring`: runs that are not measured yet
`origin`: the source of the numbers
`passage`: a passage token by token, and two of its tokens over training
`paths`: paths on principal components, and heads' ablations as bars
`runs`: the available runs and their records
`sections`: the sections below the first charts
`slider`: the slider of training (`slider.css`, `slider.js`)
`statements`: the paper's statements, and the results of the runs here
`tables`: runs as tables and sentences
`tint`: a passage tinted by the change in training (`tint.css`, `tint.js`)
"""
