"""The source of the Prune screen's numbers: the request, and the measurements."""

from typing import Any

from engine.importance.estimates import gradients
from engine.importance.rankings_of import Axis
from engine.importance.rules import Evidence
from engine.measurement import Measurement
from engine.models.masks import Mask
from pages.ui.downloads.origin import Origin, about, tasks_in_words
from pages.ui.page.tables import mask_counts
from pages.ui.prune.estimates import pruned_in_words
from pages.ui.prune.experiment import Experiment, curve, request


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
