"""Passage screen: one text, token by token, read by two models.

`reading`: the settings: one text by A and by B, and the jobs that measure its losses
`controls`: the choice of A, the colors of the text
`tables`: two readings as tables and sentences
`charts`: loss along a text as bars
"""
