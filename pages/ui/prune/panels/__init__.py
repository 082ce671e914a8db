"""Collapsible panels below the figure of Prune.

`panels`: the panels in their order, and what they add to the downloads
`questions`: the questions themselves, with both models' answers
`costs`: savings of a mask, and tokens a second, as a panel
`exports`: the pruned model as a folder
`sweeps`: the curves of other tasks and shot counts, and heads and FFNs pruned together
"""
