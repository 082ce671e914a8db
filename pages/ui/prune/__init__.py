"""Prune screen: accuracy after pruning, measured, and estimated while a slider moves.

`experiment`: the settings and their measurements, also as work for the measuring thread
`orders`: the pruning order that the screen opens with, and the button that measures one that takes long
`results`: what is stored of one model
`second_model`: the second model at the same levels, on the same questions
`state`: what one run of the screen knows
`schedule`: what it measures by itself, one step after the other
`layout`: where each part stands, and what draws it, at rest and in a drag
`parts`: figure, curve and map at rest, and the measurements still missing
`drag`: the same while the slider moves
`figure`: an accuracy as one large figure
`charts`: accuracy over levels
`around`: the curves of other tasks and the range of random orders, as far as they are stored
`estimates`: estimates at the neighboring levels, also as text
`head_map`: the map of heads and FFNs as a control: a click prunes or restores
`stories`: stories that set what is pruned, measure their claim, and say what came out
`tables`: data of charts and files, and text for screen readers
`panels`: the panels below the figure: other tasks, the grid, what pruning saves, and what the downloads are given
`questions`: the questions themselves, with both models' answers
`exports`: the pruned model as a folder
"""
