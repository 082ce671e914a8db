"""Attention screen: where heads attend, and which tokens raise a logit.

`view`: two components: the text with its map of heads, and the bytes of the chosen heads' pattern
`map.js`: the map of all heads, part of the view
`readout.js`: text of the readout and the legend, part of the view
`details`: the whole pattern as a picture, a table and files, and the command
`lens`: the guess after each layer, and one token over the layers
`tables`: heads by name, several heads combined, and their pattern as rows
`charts`: a pattern, and guesses after each layer, as pictures
"""
