"""Passage screen: one text, token by token, read by two models.

`reading`: what the screen measures: one text by A and by B
`jobs`: what is there at once, and what is being measured
`controls`: what A is, how the text is coloured
`tables`: two readings as tables and sentences
`charts`: loss along a text as bars
"""
