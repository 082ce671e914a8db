"""Two models side by side, and criteria compared.

`second`: the second model, on the screens that compare two
`pairs`: scores of two models' heads: maps on one scale, one dot per head, the largest differences
`criteria`: criteria compared: selection, measurement and drawing
`criteria_charts`: their chart, and their agreement
`criteria_tables`: the same as tables and sentences
"""
