"""Page footer: command, program, receipts and files.

`footer`: what every screen ends with: command, program, receipts, and all it shows as files
`origin`: all that says where a screen's numbers come from
`provenance`: how what is shown was measured: the stored receipts, and the link
`exports`: a screen as one archive and as one page
"""
