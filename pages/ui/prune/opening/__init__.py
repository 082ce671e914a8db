"""Opening story of a first visit: what the demo model loses without its induction heads.

`records`: the stored records that it shows, and its sentences
`playing`: when it plays, and the entrances that it leaves
"""
