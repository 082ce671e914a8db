"""Prune screen: accuracy after pruning, measured, and estimated while a slider moves.

`experiment`: the settings and their measurements
`orders`: the pruning order that the screen opens with, and the button that measures one that takes long
`jobs`: the screen's work for the worker
`example`: one of the questions, the line that decides it, and where a head looks
`found`: the stored results of an experiment
`screen`: the state of one run of the page
`dragging`: behavior while a slider moves
`estimates`: estimates at the neighboring levels, also as text
`second_model`: the second model at the same levels, on the same questions
`second_figure`: the second model next to the first one's figure, and under its curve
`parts`: figure, curve, map and bars, and the measurements still missing
`stories`: stories that set the controls, and their measurements
`story`: a story on screen: a sentence, a small table, a verdict
`panels`: the questions, savings of a mask, perplexity, the export
`origin`: the source of its numbers
`figure`: an accuracy as one large figure
`charts`: accuracy over levels, the map of heads, the bars of FFNs
`head_map`: the map of heads and the FFNs as a control: a click prunes or restores
`tables`: data of charts and files, and text for screen readers
"""
