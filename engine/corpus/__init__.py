"""Heads over a whole corpus: where each head looks, what it fires at, and what its removal costs there.

`windows`: a corpus, cut into windows of equally many tokens
`statistics`: the attention statistics of every head on a few windows
`heads`: every head over the corpus, through the store
`descriptions`: a line about a head, from its numbers by stated rules
`loss_without`: the loss without a head on the windows at which it fires most
"""
