"""Heads screen: which heads matter, and what they do.

`task`: the tab of one task
`scores`: the scores that color the map, and the work that measures them
`map`: the map of heads and FFNs, in which a click chooses a head
`card`: what the chosen head is, where it looks, what it costs on each task
`rankings`: the rankings of many tasks, and how far they agree
`across`: the tab of many tasks
`below`: heads alone and together, and what is folded
"""
