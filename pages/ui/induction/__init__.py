"""Induction screen: which heads match prefixes and copy, and how pruning changes that.

`selection`: heads selected anywhere, shown everywhere, sent to other screens
`beside`: a second model's scores beside the first's
`closely`: one score, by depth and by size
`overlap`: induction against importance
`effects`: a task's accuracy without each of the strongest induction heads
`together`: its accuracy without sets of them, beside random sets
`tables`: one row a head, and what is left as heads are pruned
`charts`: maps, scatter, strips and curves of scores by head
"""
