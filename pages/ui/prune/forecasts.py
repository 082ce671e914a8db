"""How long what the Prune screen measures would take here, in seconds; None where nothing was timed yet.

No streamlit here. What is stored already is taken off where that is cheap to know.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from engine.accuracy import speed
from engine.accuracy.costs import N_QUESTIONS, N_ROUNDS, WAYS
from engine.importance.criteria import pass_of, reads
from engine.importance.layers import n_passes
from engine.importance.rankings_of import Axis, Evidence
from engine.models.rates import seconds_for, together_s
from engine.models.subject import Lab
from engine.questions.amounts import CHARACTERS_A_TOKEN, all_characters, kept_share
from engine.questions.requests import Questions, select
from pages.ui.prune.experiment import Experiment
from pages.ui.shared.defaults import RANKING_QUESTIONS

STEP_TOKENS = 20  # of a prompt, that take as long as one token alone: measured 10 to 33, by model and precision


def gradients_s(x: Experiment, lab: Lab) -> float | None:
    """A backward pass for every choice of every question."""
    return seconds_for(lab.store, x.subject, "gradient", all_characters(x.questions, gradients=True))


def importance_s(x: Experiment, known: Evidence, lab: Lab, axes: Sequence[Axis] = ("heads", "ffns")) -> float | None:
    """What the scores take that the ranking goes by, or importance where it goes by none."""
    questions = ranked(x)
    if questions is None:
        return None
    taken: list[float | None] = []
    for axis in axes:
        if getattr(known, axis) is None:
            what = x.pruning.ranking.what("heads" if axis == "heads" else "ffns")
            read = reads(x.subject, questions, what)
            taken.append(seconds_for(lab.store, x.subject, pass_of(what), read))
    return together_s(taken)


def layers_s(x: Experiment, known: Evidence, lab: Lab) -> float | None:
    """What the order of layers takes, as far as it is missing: passes that begin in the layers that are left out."""
    questions = ranked(x)
    if "layers" not in x.pruning.missing(known):
        return 0.0
    if questions is None:
        return None
    n = n_passes(x.shape, x.pruning.ranking.layers_by, x.pruning.n_layers_dropped)
    return seconds_for(lab.store, x.subject, "forward", all_characters(questions) * (1 + n) / 2)


def curve_s(x: Experiment, axis: Axis, known: Evidence, levels: Sequence[int], lab: Lab) -> float | None:
    """These levels of one axis, and the ranking where it is not known."""
    if x.at(axis, 1000).mask(known) is None:
        ranking = together_s([importance_s(x, known, lab), layers_s(x.at(axis, 1000), known, lab)])
        levels_s = seconds_at(x, axis, None, levels, lab)
    else:
        ranking, levels_s = 0.0, seconds_at(x, axis, known, levels, lab)
    return together_s([ranking, None if levels_s is None else sum(levels_s)])


def seconds_at(
    x: Experiment, axis: Axis, known: Evidence | None, levels: Sequence[int], lab: Lab
) -> list[float] | None:
    """Seconds of all questions at each level; where nothing is `known` of the order, as if the model were whole."""
    read, found = all_characters(x.questions), []
    for permille in levels:
        mask = None if known is None else x.at(axis, permille).mask(known)
        share = 1.0 if mask is None else kept_share(mask)
        found.append(seconds_for(lab.store, x.subject, "forward", read * share))
    return None if None in found else [each for each in found if each is not None]


def cost_s(x: Experiment, lab: Lab) -> float | None:
    """A few questions in each way, again and again."""
    n_passes = len(WAYS) * (N_ROUNDS + 1)
    read = all_characters(replace(x.questions, n=min(N_QUESTIONS, x.questions.n)))
    return seconds_for(lab.store, x.subject, "forward", n_passes * read)


def speed_s(x: Experiment, lab: Lab) -> float | None:
    """A prompt and what follows it token by token, full and pruned in turn."""
    tokens = speed.PROMPT_TOKENS + speed.NEW_TOKENS * STEP_TOKENS
    n_turns = len(speed.WAYS) * (speed.N_ROUNDS + 1)
    return seconds_for(lab.store, x.subject, "forward", n_turns * tokens * CHARACTERS_A_TOKEN)


def within(budget_s: float, levels: Sequence[int], seconds: Sequence[float] | None) -> tuple[int, ...]:
    """The first of the levels that are together within the budget; none where nothing was timed yet."""
    ends = [] if seconds is None else accumulate(seconds)
    return tuple(level for level, end_s in zip(levels, ends, strict=False) if end_s <= budget_s)


def ranked(x: Experiment) -> Questions | None:
    """The questions that importance is measured on, None until they are rendered."""
    return None if x.train is None else select(x.train, RANKING_QUESTIONS, "stratified")
