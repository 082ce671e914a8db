"""Recipes by name, for the command line and the Training screen, and what each shows."""

from dataclasses import dataclass, replace

from engine.training.recipe import Recipe


@dataclass(frozen=True)
class Named:
    """A recipe with its `title`, and `words` that say what it shows; `control` is the name of the recipe that differs
    in one thing and does not show it, "" where there is none."""

    title: str
    words: str
    recipe: Recipe
    control: str = ""


_SMEARED = Recipe(n_layers=1, smeared=True, n_ctx=512, batch=2, short=128, rate=2e-3, tokens=4_000_000, snapshots=50)
_REPEATS = Recipe(n_layers=2, n_ctx=64, batch=16, rate=1e-3, tokens=2_000_000, repeats=1.0, period=(12, 32),
                  alphabet=64)  # fmt: skip
_HALF = Recipe(n_layers=2, n_ctx=128, batch=8, rate=1e-3, tokens=6_500_000, repeats=0.5, period=(8, 32))
_CURRICULUM = Recipe(n_layers=2, n_ctx=512, batch=2, short=128, rate=1e-3, tokens=10_000_000, repeats=0.75,
                     repeats_until=0.5, snapshots=60)  # fmt: skip
RECIPES = {
    "smeared": Named("1 layer, smeared keys, on text",
                     "Each key has a part of the key before it, so one layer is enough for induction heads.",
                     _SMEARED, "plain"),
    "plain": Named("1 plain layer, on text", "The same without smeared keys: no induction head can form.",
                   replace(_SMEARED, smeared=False)),
    "smeared-2-layers": Named("2 layers, smeared keys, on text", "Smeared keys, and a second layer.",
                              replace(_SMEARED, n_layers=2), "plain-2-layers"),
    "plain-2-layers": Named("2 plain layers, on text", "The same without smeared keys.",
                            replace(_SMEARED, n_layers=2, smeared=False)),
    "smeared-seed-1": Named("1 layer, smeared keys, on text, seed 1", "The first of all with another seed.",
                            replace(_SMEARED, seed=1)),
    "repeats": Named("2 plain layers, on repeats",
                     "Random tokens repeated with a random period in every row: the whole circuit forms, a head "
                     "that looks at the token before and one that matches prefixes.",
                     _REPEATS, "repeats-1-layer"),
    "repeats-1-layer": Named("1 plain layer, on repeats", "The same with one layer: it never gets there.",
                             replace(_REPEATS, n_layers=1)),
    "half": Named("2 plain layers, half text, half repeats",
                  "A long plateau, then the phase change, in the middle of learning real text.", _HALF),
    "curriculum": Named("2 plain layers, repeats first, then text alone",
                        "Three rows in four are repeats until half of the tokens; what formed by then stays on text.",
                        _CURRICULUM, "curriculum-1-layer"),
    **{f"curriculum-{name}": Named(f"{title}, repeats first, then text alone", "The curriculum with one thing changed.",
                                   replace(_CURRICULUM, **changed))
       for name, title, changed in (
           ("1-layer", "1 plain layer", {"n_layers": 1}), ("3-layers", "3 plain layers", {"n_layers": 3}),
           ("mlp", "2 layers with MLPs", {"mlp": True}), ("seed-1", "2 plain layers, seed 1", {"seed": 1}),
           ("batch-4", "2 plain layers, 4 rows a step", {"batch": 4}))},
}  # fmt: skip
