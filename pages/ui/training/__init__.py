"""Training screen: small models during training, and what forms in them.

`analysis`: the model analysis table: a column a run, nine rows
`charts`: charts over training, with a marker that moves in the browser
`choosing`: which runs, from which folder, on which axis
`live`: training one now, with charts that grow
`live_charts`: those charts
`measuring`: a run that was not measured yet
`origin`: where the numbers come from
`own_recipe`: the recipe of one's own
`paths`: paths on principal components, and heads' ablations as bars
`runs`: which runs there are, and what is known of each
`sections`: what stands below the first charts
`slider`: the slider of training (`slider.css`, `slider.js`)
`statements`: what the paper says, and what the runs here show
`tables`: runs as tables and sentences
`tint`: a passage tinted by what training has changed (`tint.css`, `tint.js`)
"""
