"""Prune screen: accuracy after pruning, measured, and estimated while a slider moves.

`experiment`: what the screen measures
`jobs`: its work for the worker
`found`: what is stored of an experiment
`screen`: what one run of the page knows
`dragging`: what happens while a slider moves
`estimates`: what pruning would do at the levels around, in words too
`neighbours`: the levels around, measured while nothing else is under way
`beside`: the second model at the same levels, on the same questions
`beside_figure`: that beside the first one's figure, and under its curve
`parts`: figure, curve, map and bars, and what is left to measure
`stories`: stories that set the controls, and what they measure
`story`: a story as it is told: a sentence, a small table, a verdict
`panels`: the questions, what a mask saves, perplexity, criteria, the export
`origin`: how its numbers were measured, and how to find them again
`figure`: an accuracy as one large figure
`charts`: accuracy over levels, the map of heads, the bars of FFNs
`head_map`: the map of heads and the FFNs as a control: a click prunes or restores
`tables`: what charts draw, files hold and screen readers read
"""
