"""The forms of charts, in Vega-Lite. A view states data, titles and colors; the forms draw them.

`kit`: over axes: bars, intervals, curves, scatter of heads
`maps`: of cells: map of heads, matrix, attention of a head
`channels`: what all forms are made of
"""
