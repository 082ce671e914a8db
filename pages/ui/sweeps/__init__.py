"""Sweeps screen: accuracy over tasks, levels and orders.

`plans`: the measurements of each section, and their orders
`sections`: drawings of the results so far
`criteria`: the section that compares criteria of one task
`criteria_charts`: its chart, and the agreement of the criteria
`criteria_tables`: the same as tables and sentences
`tables`: curves with their mean, the grid with its border
`charts`: curves and grid, one shot count each
"""
