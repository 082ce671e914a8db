"""The Training screen: small models that learn, and what forms in them on the way.

`live`: training one now, with charts that grow
`live_charts`: those charts
`own_recipe`: the recipe of one's own
"""
