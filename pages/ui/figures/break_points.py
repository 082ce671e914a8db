"""How far pruning can go, as text: the same on Prune and on Sweeps."""

POWER_HELP = (
    "A smaller loss may be there and not be found: no detectable loss is not no loss. Exact McNemar test, 5% for all "
    "levels together (Holm's correction), where pruning gains no question; where it gains some, it takes a larger one. "
    "This is for a single level that loses: where other levels lose too, less is enough. More questions detect smaller "
    "losses. Prune tests one level alone, this table all levels together: Prune may call a loss clear that is not "
    "detectable here."
)
