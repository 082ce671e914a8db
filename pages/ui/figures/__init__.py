"""Charts, token texts and pictures, on screen and as files.

`charts`: common elements of charts, and their export as files
`empty`: what a screen shows while nothing of it is measured
`drawing`: pictures and tables on screen
`sheet`: what a screen shows and hands to its downloads
`token_text`: a component for tokens: a text, each token tinted, with a readout; and how two models write on
"""
