"""Recipes by name, for the command line and the Training screen: what is trained, and what it is to show."""

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


_SMEARED = Recipe(n_layers=1, smeared=True, rate=4e-3, tokens=3_000_000)
_REPEATS = Recipe(n_layers=2, n_ctx=64, batch=16, rate=1e-3, tokens=2_000_000, repeats=1.0, period=(12, 32),
                  alphabet=64)  # fmt: skip
_HALF = Recipe(n_layers=2, n_ctx=128, batch=8, rate=1e-3, tokens=5_000_000, repeats=0.5, period=(8, 32))
RECIPES = {
    "smeared": Named("1 layer, smeared keys, on text",
                     "Each key has a part of the key before it, so one layer is enough for induction heads.",
                     _SMEARED, "plain"),
    "plain": Named("1 plain layer, on text", "The same without smeared keys: no induction head can form.",
                   replace(_SMEARED, smeared=False)),
    "repeats": Named("2 plain layers, on repeats",
                     "Random tokens repeated with a period drawn anew for every row: the whole circuit forms, a head "
                     "that looks at the token before and one that matches prefixes.",
                     _REPEATS, "repeats-1-layer"),
    "repeats-1-layer": Named("1 plain layer, on repeats", "The same with one layer: it never gets there.",
                             replace(_REPEATS, n_layers=1)),
    "half": Named("2 plain layers, half text, half repeats",
                  "A long plateau, then the phase change, in the middle of learning real text.", _HALF),
}  # fmt: skip
