"""Scripts that made the included model and its tasks; run by hand, never imported by the app.

`families`: the families of questions, and what each draws
`words`: their words, by kind, and their sentences
`suite`: writes the questions as files
`corpus`: training text and the tokenizer made from it
`recipe`: the shape and rates of the included model, and the mix of rows at each step
`runs`: its initial weights, its forward pass in training, its optimizers and snapshots; trains and measures the runs
that come with the app, the embedded model's among them
`pair_tasks`: writes the tasks of word pairs
`shipped`: measures the default views, and writes the results that come with the app
`report`: measures the model against what it is meant to show
`measured`: what the report measures, through the app's own functions
`bars`: what the model is meant to show, held against those figures
"""
