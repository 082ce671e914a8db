"""Export and slides: files, command, program, receipts, and the talk.

`actions`: the buttons of every screen: Export with its panel, and Add slide
`origin`: the source of a screen's numbers
`provenance`: how the results shown were measured: the stored receipts, and the link
`shipped`: shipped results: the button that measures them here, and their model loaded ahead
`exports`: a screen as one archive, as one page, and as a Jupyter notebook
`slides`: what screens showed when they were added, in order
`talk`: slides as one page
`present`: the talk over the app, and the script that is on every page
"""
