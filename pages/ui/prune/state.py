"""What one run of the Prune screen knows, read once from the study and the store."""

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from engine.questions.rendering import RenderedQuestions, TaskSpec, render_questions
from engine.questions.tasks import OWN_SUFFIXES, task_info
from engine.studies.removal import found_heads
from engine.views.accuracy import Standing, standing
from engine.views.estimates import EstimateLine
from pages.ui.controls.coloring import Coloring, chosen_coloring, read_coloring
from pages.ui.controls.model import look_for_model, wait_for_model
from pages.ui.controls.study import Study
from pages.ui.controls.task import draw_fault
from pages.ui.figures.sheet import Sheet
from pages.ui.page.reads import stored_cached
from pages.ui.page.runtime import end_run, errors_shown, jobs, store
from pages.ui.page.work import Action, Work
from pages.ui.prune import around, estimates, orders
from pages.ui.prune.around import Around
from pages.ui.prune.experiment import Experiment
from pages.ui.prune.results import Results, read_results
from pages.ui.prune.second_model import SecondModel, read_second


@dataclass(frozen=True, kw_only=True)
class PruneState(Results):
    """The results of the screen, and what is shown with them.

    `title`: of the task
    `second_model`: the second model's results; None without one
    `coloring`: the scores of the map
    `induction_heads`: those heads, by flat index, if they are known
    `since_s`: when the page ran
    `sheet`: the pictures and tables drawn, for the downloads
    """

    title: str
    second_model: SecondModel | None
    coloring: Coloring
    induction_heads: tuple[int, ...]
    since_s: float = field(default_factory=time.monotonic)
    sheet: Sheet = field(default_factory=Sheet)

    @property
    def is_complete(self) -> bool:
        """Returns whether the full and the pruned model have answered all questions."""
        return self.x.is_complete(self.stored_answers)

    @property
    def standing(self) -> Standing:
        """Returns the accuracy so far, as it is shown."""
        x, found = self.x, self.answers
        mask = self.mask or found.mask  # the job may know it before the page does
        what, is_full = estimates.pruned_in_words(x, self.known, mask), mask is not None and mask.is_full
        return standing(self.title, found.full, found.pruned, x.questions.n, what, is_full)

    @property
    def estimates(self) -> EstimateLine:
        """Returns the estimates along the axis, as read last; none if they are of other settings."""
        job = jobs().status(estimates.SLOT)
        line = EstimateLine() if job is None or job.value is None else job.value.line
        return line if line.of == self.x.curve_key(self.axis) else EstimateLine()

    @property
    def around(self) -> Around:
        """Returns what was read last of what stands around the curve."""
        job = jobs().status(around.SLOT)
        found = job.value if job is not None and job.value is not None else Around()
        return found if found.of == self.x.curve_key(self.axis) else Around()

    @property
    def texts(self) -> dict[int, str]:
        """Returns the text under each step of the slider."""
        return estimates.texts(self.x, self.axis, self.known, self.estimates)


def read_state(of: Study) -> PruneState:
    """Returns the state of the study; ends the run while its model or its questions are prepared."""
    data_dir, target = of.data_dir, wait_for_model(of, prunes=True)
    with errors_shown():
        task, pruning, info = of.asked(target), of.pruning(target), task_info(of.task.name)
    asked = _questions("questions", task, data_dir, 0)
    if (validation := asked.awaited()) is None:
        job = asked.now()
        draw_fault(None if job is None else job.details)
        end_run()
    # the cost of an order depends on it
    is_urgent = bool(pruning.by_level or not of.ranking) and not target.spec.is_demo
    train = _questions("train questions", replace(task, split="train"), data_dir, -1 if is_urgent else 1).value()
    x = Experiment(target, data_dir, validation, train, of.limit, pruning)
    orders.open_with_an_order(x, of.axis, of.ranking)
    found: dict[str, Any] = read_results(x, of.axis)
    second = None if of.second is None else look_for_model(of, of.second)
    ring, title = stored_cached(found_heads(target)), task.title
    if not task.name.endswith(OWN_SUFFIXES):
        title = f"{task.name} ({info.title})"
    return PruneState(
        **found,
        title=title + task.manner,
        second_model=None if second is None else read_second(x, of.axis, second),
        coloring=read_coloring(chosen_coloring(), target, x.task, pruning.ranking, data_dir, train),
        induction_heads=() if ring is None else ring.heads,
    )


def _questions(slot: str, task: TaskSpec, data_dir: str | None, priority: int) -> Work[RenderedQuestions]:
    """Returns the work that renders the questions of a task; finished at once if they are stored."""
    render = partial(render_questions, task, data_dir, store())
    return Work(slot, "Preparing the questions", Action.of(f"{task} {data_dir}", render, reads=True), priority)
