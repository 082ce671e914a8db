"""Results as they are presented, everywhere alike.

`view`: `View`, `Part`, `Column`, and a view as text
`words`: a number with its interval in words
`forms`: the forms of charts: bars, intervals, curves, maps of heads, matrices
`text_picture`: a text with its tints as a chart
`pictures`: charts as data, and as files
`colors`: the colors that are not the theme's
`accuracy`: accuracy on a task, of a model or of two, and next to published values
`confidence`: how sure models are of their answers, and whether that fits
`estimates`: estimates of accuracy, and how far they can be trusted
`questions`: questions with the answers of models
`importance`: scores of heads, FFNs or layers, and what a lower precision disturbs
`induction`: induction scores of heads
`correlation`: how far rankings of tasks agree
`mechanisms`: what in-context learning loses without kinds of heads
`pruned`: an exported model, its speed and memory, and the perplexity of a text
`sweep`: accuracy over tasks and levels, criteria compared by it, and a paper study's statements
`heads`: what one head does, what ideal patterns leave, and where heads look in a corpus
`training`: a run of training, and its snapshots
`texts`: losses, continuations, attention, and the lens
`patches`: activations of one prompt in another, and function vectors

None imports pandas or a plotting library before a chart or a table is asked for.
"""
