"""Two models side by side, and criteria compared.

`second`: that second model, on the screens that set two side by side
`pairs`: scores of two models' heads: maps on one scale, a point a head, the largest differences
`criteria`: criteria compared: what is chosen, measured and drawn
`criteria_charts`: their chart, and how much they agree
`criteria_tables`: the same as tables and sentences
"""
