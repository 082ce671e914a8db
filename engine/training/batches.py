"""The rows of one step: a function of the recipe, the text and the step alone, so that a run can stop and go on."""

import numpy as np

from engine.training.recipe import Recipe


def rows_of(recipe: Recipe, text: np.ndarray, step: int) -> np.ndarray:
    """(rows, tokens of a row + 1) ids, each row with the beginning token (0) in front.

    A row is text, the next stretch that no other row has, or random tokens repeated with a period of its own. The
    stretch whose place a repeat takes is left out.
    """
    drawn = np.random.default_rng([recipe.seed, step])
    length = recipe.row_tokens(step)
    rows = np.zeros((recipe.step_tokens // length, length + 1), np.int64)
    repeats = recipe.repeats if step < recipe.repeats_until * recipe.n_steps else 0.0
    for number in range(len(rows)):
        if drawn.random() < repeats:
            rows[number, 1:] = _repeated(recipe, drawn, length)
        else:
            start = step * recipe.step_tokens + number * length
            rows[number, 1:] = text[start : start + length]
    return rows


def _repeated(recipe: Recipe, drawn: np.random.Generator, length: int) -> np.ndarray:
    """(length,) random tokens, evenly drawn, repeated: with one fixed period a model learns a place, no match."""
    period = int(drawn.integers(recipe.period[0], recipe.period[1] + 1))
    unit = drawn.integers(1, 1 + (recipe.alphabet or recipe.n_vocab - 1), period)
    return np.resize(unit, length)
