"""The state of one run of the Prune screen: `PruneScreen`, its settings and drawings, and `PruneResult`, its
results."""

import time
from dataclasses import dataclass, field, replace

from engine.importance.rankings_of import Axis
from engine.questions.tasks import OWN_SUFFIXES, task_info
from engine.texts.perplexity import Both
from pages.ui.controls.drag_slider import hand
from pages.ui.controls.own_questions import draw_fault
from pages.ui.controls.sidebar import identity_of, wait_for_model
from pages.ui.controls.study import Setup, Study
from pages.ui.figures.sheet import Sheet
from pages.ui.page.defaults import LEVELS
from pages.ui.page.runtime import end_run, errors_shown, jobs
from pages.ui.prune import dragging, estimates, orders
from pages.ui.prune.example import Look
from pages.ui.prune.experiment import AnswersSoFar, Experiment
from pages.ui.prune.found import Found
from pages.ui.prune.jobs import accuracy_work, questions_work
from pages.ui.prune.second_model import SecondModel


class PruneResult(Found):
    """The results and drawings of the last run of the whole page.

    `title`: of the task. `postponed`: nothing is measured before the browser has drawn this once. `has_full`: the curve
    was drawn with the full model's line. `waits`: the slots whose end brings other estimates. `second`: the perplexity
    of a text. `compared`: the second model. `look`: where a head looks in the example.
    """

    drawn = has_full = False
    second = Both()
    compared: SecondModel | None = None
    look: Look | None = None

    def __init__(self, x: Experiment, title: str, postponed: bool) -> None:
        super().__init__(x)
        self.title, self.postponed = title, postponed
        self.estimates, self.waits = dragging.latest_estimates()

    @property
    def awaits_rows(self) -> bool:
        """Returns whether nothing is measured before the train questions are rendered."""
        return orders.awaits_rows(self.x, self.known)

    @property
    def can_estimate(self) -> bool:
        """Returns whether the estimates' gradients are missing and can be measured: not for a task that is decoded."""
        x, is_missing = self.x, not self.waits and not self.estimates.has_gradients
        return is_missing and not x.judged.greedy and x.is_complete(self.stored)

    def at_hand(self) -> Experiment:
        """Returns the experiment at the sliders' present positions."""
        x = self.x
        for axis in LEVELS:
            x = x.at(axis, hand(axis).permille)
        return x

    def texts(self, axis: Axis) -> dict[int, str]:
        """Returns the text under each step of the axis's slider."""
        return estimates.texts(self.x, axis, self.known, self.estimates.line(self.x, axis))

    @property
    def measured(self) -> AnswersSoFar:
        """Returns the answers so far: of this experiment's job, if it has one."""
        return accuracy_work(self.x, self.mask).found or self.stored


@dataclass
class PruneScreen:
    """The study, and the results and drawings of the run that read it."""

    study: Study
    postponed: bool  # nothing is measured before the browser has drawn this once
    whole: bool = True  # the whole page runs, not only the fragment with the sliders
    shown: PruneResult | None = None  # the last results
    since_s: float = field(default_factory=time.monotonic)  # when the page ran
    sheet: Sheet = field(default_factory=Sheet)  # for the downloads

    def look(self) -> PruneResult:
        """Returns the results of the study; missing ones are being measured, unless a slider is dragged."""
        of, data_dir = self.study, self.study.setup.data_dir
        target = wait_for_model(of.setup, prunes=True)
        with errors_shown():
            task, pruning, info = of.asked(target), of.pruning(target), task_info(of.task.name)
        asked = questions_work("questions", task, data_dir, 0)
        if (judged := asked.awaited()) is None:
            job = asked.now()
            draw_fault(None if job is None else job.details)
            end_run()
        # the cost of an order depends on it
        is_urgent = bool(of.heads or of.ffns or of.layers or not of.ranking) and not target.spec.is_demo
        rows = replace(task, split="train")
        train = questions_work("train questions", rows, data_dir, -1 if is_urgent else 1).value()
        x = Experiment(target, data_dir, judged, train, of.limit, pruning)
        if not dragging.moving():
            orders.open_with_an_order(x, of.axis, of.ranking)
        title = task.title if task.name.endswith(OWN_SUFFIXES) else f"{task.name} ({info.title})"
        shown = PruneResult(x, title + task.manner, self.postponed)
        if x.is_complete(shown.stored) or orders.asks(x, shown.known):
            jobs().drop("accuracy")
        elif not dragging.moving() and not self.postponed and not shown.awaits_rows:
            dragging.measure(x, shown.mask)
        return shown


def waits_for(setup: Setup) -> list[str]:
    """Returns the slots of what the page waits for before it draws a figure."""
    return [identity_of(setup.spec).slot, f"ways of {setup.spec.precision}", "questions"]
