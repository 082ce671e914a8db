"""In context screen: how loss falls along a text, and which heads cause it.

`setting`: what the screen measures, its jobs and its commands
`sections`: controls, large figures, and the heads as maps and a table
`together`: what sets of induction heads make, beside random sets
`tables`: what charts draw, files hold and sentences say
`charts`: loss by index, its slope, and heads by what they do
"""
