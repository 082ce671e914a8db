"""The rankings of many tasks, and the accuracy of each task by the orders of the others: read and measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from engine.measurement import Measurement
from engine.models.session import Target
from engine.questions.rendering import CHUNK, TaskSpec
from engine.requests import Sweep
from engine.studies.paper_study import pool_of
from engine.studies.surveys import Survey, SurveySettings, describe_task
from engine.studies.sweeps import SweepRow, Swept, points, sweep
from engine.views.correlation import Rankings
from pages.ui.controls.first_views import JUDGES, transfer_percent
from pages.ui.controls.many_tasks import importance_work, is_short, setting_of, so_far
from pages.ui.controls.study import Study
from pages.ui.downloads.origin import of_grid, of_model, percent
from pages.ui.page.runtime import first_figure_s
from pages.ui.page.work import Work

EVEN, PAPERS = "heads-one-divisor", "heads"
TITLES = {EVEN: "Heads by gradient", PAPERS: "Heads by gradient (Bansal et al.)",
          "heads-oracle": "Heads by removal", "ffns": "FFNs"}  # fmt: skip
ORDERED = "Pruning by another task's order"


@dataclass(frozen=True)
class RankingReader:
    """Reads the rankings of `tasks` by the score `what` as far as they are stored, and measures them."""

    study: Study
    target: Target
    tasks: Sequence[TaskSpec]
    what: str

    @cached_property
    def setting(self) -> SurveySettings:
        return setting_of(self.study)

    @property
    def work(self) -> Work[Survey]:
        return importance_work(
            self.setting, self.target, self.tasks, self.what, f"rankings {self.what}", TITLES[self.what]
        )

    @property
    def first(self) -> Work[Survey]:
        """Measures the first questions of every task, of a gradient."""
        first = replace(self.setting, n_ranking=CHUNK)
        title = f"{TITLES[self.what]}, first questions"
        return importance_work(first, self.target, self.tasks, self.what, "rankings first", title)

    @cached_property
    def found(self) -> Survey:
        """The whole rankings so far."""
        return so_far(self.work)

    @cached_property
    def shown(self) -> dict[TaskSpec, Any]:
        """The rankings so far, in the order of the tasks: of the first questions, if not all are measured."""
        known = {} if self.what not in (EVEN, PAPERS) else so_far(self.first).preview(self.tasks)
        known |= self.found.preview(self.tasks)
        return {task: known[task] for task in self.tasks if task in known}

    def start(self) -> None:
        """Starts the rankings by the gradient, or those of the first questions, as far as a screen may measure by
        itself."""
        if self.found.n_known == len(self.tasks) or self.what != EVEN:
            return
        for work in (self.work, self.first):
            if self.work.under_way or not work.is_read:
                return
            if is_short(work, self.target, first_figure_s()):
                replace(work, while_seen=True).start()
                return

    @property
    def judged(self) -> list[TaskSpec]:
        """The tasks that are pruned by each other's orders: those at the largest number of examples."""
        most = max(task.shots for task in self.tasks)
        return [task for task in self.tasks if task.shots == most and task in self.found.scores]

    @property
    def permille(self) -> int:
        return 10 * transfer_percent(self.target.spec.is_demo)

    @cached_property
    def costs(self) -> Measurement[Swept]:
        """Returns the measurement of the accuracy of each task by its own order and by those of the others."""
        names = [task.name for task in self.judged]
        wanted = points(self.judged, [self.permille], [0], "own")
        wanted += [each for name in names for each in points(self.judged, [self.permille], [0], "task", name)]
        setting = replace(self.setting, heads_by=self.what)
        return sweep(self.target, setting, wanted, pool_of(names))

    @property
    def costs_requests(self) -> list[Sweep]:
        """Returns the requests of the same accuracies: of all tasks by the order of each."""
        of: dict[str, Any] = {**of_model(self.target), **of_grid(self.judged), "task_data": self.study.data_dir}
        of |= {"head_levels": percent(self.permille), "head_score": self.what, "limit": JUDGES, "order": "task"}
        sources = [task.name for task in self.judged]
        return [Sweep(**of, source_task=name, out=f"accuracies-{at}.csv") for at, name in enumerate(sources)]

    @property
    def costs_work(self) -> Work[Swept]:
        return Work("rankings costs", ORDERED, self.costs, 3)

    @property
    def has_costs(self) -> bool:
        """Whether tasks can be pruned by each other's orders."""
        return self.what in (EVEN, PAPERS) and len(self.judged) > 1

    @cached_property
    def rankings(self) -> Rankings:
        """The rankings so far by label, and what they cost other tasks once all of that is measured."""
        rows = (
            max((each.rows for each in self.costs_work.results_so_far()), key=len, default=()) if self.has_costs else ()
        )
        n = len(self.judged)
        costs = costs_of(rows, self.label) if len(rows) == n * (n + 1) else {}
        return Rankings({self.label(task): each.scores for task, each in self.shown.items()}, costs, self.permille)

    def label(self, task: TaskSpec) -> str:
        """Returns a task by its name, with its number of examples if there are several."""
        return describe_task(task) if len({each.shots for each in self.tasks}) > 1 else task.name


def costs_of(
    rows: Sequence[SweepRow], label: Callable[[TaskSpec], str] = describe_task
) -> dict[tuple[str, str], tuple[float, bool]]:
    """Returns by two rankings the points that the task of the first loses when pruned by the order of the second
    instead of its own, and whether the 95% intervals of both accuracies are apart."""
    own = {row.point.task: row for row in rows if row.point.by == "own"}
    found = dict[tuple[str, str], tuple[float, bool]]()
    for row in rows:
        task, mine = row.point.task, own[row.point.task]
        if row.point.by == "task" and row.point.of != task.name:
            other = label(replace(task, name=row.point.of))
            found[label(task), other] = 100 * (mine.acc - row.acc), row.high < mine.low or mine.high < row.low
    return found
