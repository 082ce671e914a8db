"""Induction screen: which heads match prefixes and copy, and how pruning changes that.

`selection`: heads selected anywhere, shown everywhere, sent to other screens
`ablation`: accuracy without the induction heads, for the finding
`sections`: the folded sections
`overlap`: induction against importance
`together`: a task's accuracy without sets of them, next to random sets
`tables`: one row per head, and the remaining scores as heads are pruned
`charts`: maps, scatter, strips and curves of scores by head
"""
