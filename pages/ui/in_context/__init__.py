"""In context screen: how loss falls along a text, and which heads cause it.

`first_view`: what the screen opens with
`setting`: the settings, their jobs and their commands
`sections`: controls, large figures, and the heads as maps and a table
`together`: the effect of sets of induction heads, next to random sets
`tables`: data of charts and files, and sentences
`charts`: loss by index, its slope, and heads by their effect
"""
