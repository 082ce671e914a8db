"""Mechanisms screen: what in-context learning loses without kinds of heads.

`tables`: sets of heads, the best heads of each kind, and overlaps of kinds as rows
`charts`: what is lost without each kind
`sections`: the parts of the screen
`vector`: a task switched on by its function vector
"""
