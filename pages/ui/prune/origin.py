"""The source of the Prune screen's numbers: the request, and the measurements."""

from typing import Any

from engine.accuracy.evaluation import accuracy
from engine.importance.estimates import gradients
from engine.importance.rankings_of import Axis
from engine.importance.rules import Evidence
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.statistics import paired
from pages.ui.downloads.origin import Origin, about, tasks_in_words
from pages.ui.figures import published
from pages.ui.page.tables import mask_counts, percent
from pages.ui.prune import figure
from pages.ui.prune.estimates import pruned_in_words
from pages.ui.prune.experiment import AnswersSoFar, Experiment, curve, request


def origin(x: Experiment, known: Evidence, axis: Axis) -> Origin:
    """Returns the origin of an experiment's figures and of its curve over `axis`."""
    mask, measurements = x.mask(known), dict[str, Measurement[Any]]({"Full model": x.answers(Mask.full(x.shape))})
    if mask is not None and not mask.is_full:
        measurements["Pruned model"] = x.answers(mask)
    measurements |= {"Importance": x.shown_evidence, "Curve": curve(x, axis, known)}
    if not x.judged.greedy:
        measurements["Estimates"] = gradients(x.target, x.questions)
    of = about(x.target, tasks_in_words([x.task]), f"{x.questions.n:,} questions", pruned_in_words(x, known, mask))
    pruned = "" if mask is None else f"{mask_counts(x.shape, mask) or 'full model'}, "
    return Origin("Prune", [request(x)], measurements, of, pruned + x.task.title)


def figure_in_words(x: Experiment, found: AnswersSoFar, known: Evidence) -> list[str]:
    """Returns the large figure and the text under it."""
    pruned = pruned_in_words(x, known, x.mask(known))
    if not found.pruned:
        return [pruned]
    says = [f"**{percent(accuracy(found.pruned).acc)}** of the questions answered right", pruned]
    says.insert(1, "  \n".join(figure.in_words(accuracy(found.pruned), x.questions.n)))
    if found.full and found.mask and not found.mask.is_full:
        change = paired(found.full.correct, found.pruned.correct)
        says.insert(2, figure.change_in_words(change))
        says.insert(2, f"Full model: {percent(accuracy(found.full).acc)}")
    if of_paper := published.in_words(x.target, x.task):
        says.append(of_paper)
    return says
