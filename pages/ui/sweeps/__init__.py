"""Sweeps screen: accuracy over tasks, levels and orders.

`plans`: what each section measures, and whose rankings make it
`sections`: what was measured so far, drawn
`criteria`: the section that compares criteria of one task
`tables`: curves with their mean, the grid with its border, transfer
`charts`: curves, grid and transfer, one shot count each
"""
