"""Measurements over many tasks, shot counts, levels and orders.

`surveys`: importance of many tasks
`sweeps`: accuracy over many masks, in one run that resumes where it stopped
`compare`: one task by several criteria: areas, intervals, and how much they agree
`break_points`: how much of one axis a task can lose
`removal`: the induction heads removed at once, beside as many others at random
`one_head`: all that is known of one head, part by part, measured where it is not stored
`portrait`: the numbers of that: ranks, effects, and what the head is in one sentence
`two_models`: two models on the same questions, and their heads paired by place
`study`: the first paper's whole study of one model
`statements`: the paper's statements, and which of them hold
"""
