"""Page footer: command, program, receipts and files.

`footer`: the footer of every screen: command, program, receipts, and downloads
`origin`: the source of a screen's numbers
`provenance`: how the results shown were measured: the stored receipts, and the link
`shipped`: that results are shipped, and the button that measures them here
`exports`: a screen as one archive and as one page
`notebook`: a screen as a Jupyter notebook
"""
