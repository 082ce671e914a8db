"""Training screen: small models during training, and what forms in them.

`charts`: the charts of the view, with a marker that moves in the browser
`choosing`: the run, its control, and the folder of one's own runs
`live`: training models now
`passage`: a passage, tinted by the losses of its tokens (`passage.css`, `passage.js`)
`runs`: the available runs and their measurements
`slider`: the slider of training (`slider.css`, `slider.js`)
"""
