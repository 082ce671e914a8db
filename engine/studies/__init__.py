"""Measurements over many tasks, shot counts, levels and orders.

`surveys`: importance of many tasks, and agreement of two rankings or models
`sweeps`: accuracy over many masks, in one run that resumes where it stopped
`compare`: one task by several criteria: areas, intervals and agreement
`mechanisms`: what examples add, without the top heads of each kind; how much kinds overlap
`mechanism_findings`: what such a comparison finds, in one or two sentences
`precision`: outputs, accuracy and perplexity in another precision
`signs`: function-vector heads by the sign of their score
`removal`: induction heads ablated together, compared with equally many random heads
`ablations`: the costliest heads alone, the induction heads alone and together; one head by task
`one_head`: the measurements of one head, read from the store or measured
`portrait`: results for one head: ranks, effects, and what it costs
`paper_study`: all measurements of the first paper, for one model
`statements`: the paper's statements and which of them hold, how much a task can lose, tables
"""
