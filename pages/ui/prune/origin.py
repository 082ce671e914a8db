"""Where the Prune screen's numbers come from: the command, the Python program, and the records that are read."""

from collections.abc import Callable

from engine.accuracy.evaluation import accuracy
from engine.importance.rankings_of import Axis, Evidence
from engine.models.masks import Mask
from engine.models.subject import Lab
from engine.statistics import paired
from pages.ui.prune import figure
from pages.ui.prune.estimates import pruned_in_words
from pages.ui.prune.experiment import AnswersSoFar, Experiment, command, recall_answers, recall_known
from pages.ui.prune.tables import curve_points
from pages.ui.shared import published
from pages.ui.shared.origin import Origin, about, tasks_in_words
from pages.ui.shared.python_code import of_accuracy
from pages.ui.shared.tables import percent


def origin(x: Experiment, found: AnswersSoFar, known: Evidence, axis: Axis) -> Origin:
    """The origin of an experiment's figures and of its curve over `axis`."""
    mask = x.mask(known)
    reads: dict[str, Callable[[Lab], object]] = {"Full model": lambda lab: recall_answers(x, Mask.full(x.shape), lab)}
    if mask is not None and not mask.is_full:
        reads["Pruned model"] = lambda lab: recall_answers(x, mask, lab)
    reads["Importance"] = lambda lab: recall_known(x, lab)
    reads["Curve"] = lambda lab: curve_points(x, axis, known, lab)
    program = of_accuracy(x.subject, x.data_dir, x.task, x.n_taken(found), x.pruning)
    pruned = pruned_in_words(x, known, mask)
    of = about(x.subject, tasks_in_words([x.task]), f"{x.n_taken(found):,} questions", pruned)
    return Origin("Prune", command(x, found), program, reads, of, figure_in_words(x, found, pruned))


def figure_in_words(x: Experiment, found: AnswersSoFar, pruned: str) -> list[str]:
    """The large figure and what stands under it."""
    if not found.pruned:
        return [pruned]
    says = [f"**{percent(accuracy(found.pruned).acc)}** of the questions answered right", pruned]
    says.insert(1, "  \n".join(figure.in_words(accuracy(found.pruned), x.questions.n)))
    if found.full and found.full is not found.pruned:
        change = paired(found.full.correct, found.pruned.correct)
        says.insert(2, figure.change_in_words(change))
        says.insert(2, f"Full model: {percent(accuracy(found.full).acc)}")
    if beside := published.in_words(x.subject, x.task):
        says.append(beside)
    return says
