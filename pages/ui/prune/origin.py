"""Where the Prune screen's numbers come from: the command, the Python program, and the records that are read."""

from collections.abc import Callable

from engine.importance.rankings_of import Axis, Evidence
from engine.models.masks import Mask
from engine.models.subject import Lab
from pages.ui.prune.experiment import AnswersSoFar, Experiment, command, recall_answers, recall_known
from pages.ui.prune.tables import curve_points
from pages.ui.shared.origin import Origin
from pages.ui.shared.python_code import of_accuracy


def origin(x: Experiment, found: AnswersSoFar, known: Evidence, axis: Axis) -> Origin:
    """The origin of an experiment's figures and of its curve over `axis`."""
    mask = x.mask(known)
    reads: dict[str, Callable[[Lab], object]] = {"Full model": lambda lab: recall_answers(x, Mask.full(x.shape), lab)}
    if mask is not None and not mask.is_full:
        reads["Pruned model"] = lambda lab: recall_answers(x, mask, lab)
    reads["Importance"] = lambda lab: recall_known(x, lab)
    reads["Curve"] = lambda lab: curve_points(x, axis, known, lab)
    program = of_accuracy(x.subject, x.data_dir, x.task, x.n_taken(found), x.pruning)
    return Origin(command(x, found), program, reads)
