"""Rankings and accuracies over many tasks: `Correlate` and `Sweep`."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from engine.errors import HeadroomError, UsageError
from engine.files import named
from engine.heads.induction import best_heads, induction
from engine.importance.orders import OF_MANY_TASKS, Axis
from engine.importance.rankings import AGGREGATES, permille
from engine.importance.scores import WHAT
from engine.measurement import Measurement
from engine.models.session import Session
from engine.progress import announce, in_time
from engine.questions.rendering import TaskSpec
from engine.questions.tasks import embedded_tasks, list_tasks
from engine.requests.base import OfModel, OnRay, RequestRun, Result, WithData
from engine.requests.fields import choice, flag, names_of, number, numbers_of, output, string
from engine.requests.output import TABLES, file_of, table_file
from engine.requests.shared_fields import MOST, MOST_SEED, labels_of_examples, training_questions
from engine.studies import sweeps
from engine.studies.surveys import (
    Survey,
    SurveySettings,
    agreement_rows,
    describe_task,
    grid,
    mean_correlation,
    survey,
    together,
    written_row,
)
from engine.views.correlation import correlation_view, ranks
from engine.views.importance import mean_scores_part
from engine.views.induction import capacity_view
from engine.views.sweep import statements_view, sweep_view
from engine.views.view import View

if TYPE_CHECKING:
    from engine.studies.sweeps import Point, Swept

T = TypeVar("T")
TENTHS = ",".join(map(str, range(0, 101, 10)))
N_BEST = 5
LONG_S = 10.0  # work that takes longer says so before it begins
HEAD_SCORES = ("heads", "heads-one-divisor")


@dataclass(frozen=True, kw_only=True)
class OfManyTasks(WithData, OfModel):
    """A model, and many tasks at several shot counts."""

    tasks: str | None = string(
        None,
        "comma-separated task names (default: all included tasks, or all tasks in --task-data)",
        what="tasks",
        example="2",
    )
    shots: str = string("0,1,5", "comma-separated numbers of examples in the prompt (default: 0,1,5)")
    labels: str = labels_of_examples()
    order_questions: int = training_questions()
    aggregate: str = choice(
        "scores",
        AGGREGATES,
        "how to aggregate tasks: by the mean of their scores, of their shares of a task's total, or of their ranks "
        "(default: scores)",
    )

    def grid(self) -> list[TaskSpec]:
        """Every task at every shot count. UsageError: none are left."""
        if self.tasks or self.data_dir is None:
            default = list(embedded_tasks())
        else:
            states = list_tasks(self.data_dir)
            default = [state.info.name for state in states if state.available and state.where == "folder"]
        names, shots = names_of(self.tasks, default), numbers_of("--shots", self.shots)
        if not names or not shots:
            raise UsageError(f"no tasks or shot counts are left of --tasks {self.tasks!r} --shots {self.shots!r}; "
                             f"`headroom tasks` lists the tasks")  # fmt: skip
        return grid(names, sorted(set(shots)), self.labels)

    def settings(self, n_questions: int | None = None) -> SurveySettings:
        """How the tasks are measured, as the engine names it."""
        of = self.spec, self.bos, self.data_dir, n_questions, self.order_questions
        return SurveySettings(*of, aggregate=self.aggregate)


@dataclass(frozen=True, kw_only=True)
class Correlate(OnRay, OfManyTasks):
    """Correlate the importance scores of tasks. The value is a Survey."""

    command: ClassVar[str] = "correlate"
    group: ClassVar[str] = "Scores"
    score: str = choice("heads", WHAT, "score to compute (default: heads)")
    induction: bool = flag(
        "also correlate with prefix matching and copying scores, and show what pruning keeps of them"
    )
    out: str | None = output(TABLES, is_required=True)

    def measurement(self, session: Session) -> Measurement[Survey]:
        return survey(self.target(session), self.settings(), self.grid(), self.score)

    def measure(self, run: RequestRun) -> Result:
        import pandas as pd

        if self.induction and self.score == "ffns":
            raise UsageError("--induction compares heads, and --score is ffns; leave one of them out")
        found = run.value(self.measurement(run.session))
        induced = run.value(induction(run.session.target(self.spec))) if self.induction else None
        others = {} if induced is None else {name: induced.mean[name] for name in ("prefix_matching", "copying")}
        rows = agreement_rows(found, self.aggregate, others)
        table = [written_row(row) for row in rows]
        counts = sorted({task.shots for task in self.grid()})
        means = {str(shots): mean_correlation(rows, shots, others) for shots in counts}
        fields = {"what": self.score, "n": self.order_questions, "tasks": len(found.scores), "mean_srcc": means,
                  "rows": table, "out": self.out}  # fmt: skip
        scores = {describe_task(task): each.scores for task, each in found.scores.items()}
        fields |= {"ranks": {name: ranks(each).tolist() for name, each in scores.items()}}
        mean = together(self.settings(), found.scores) if found.scores else None
        fields |= {"best": _best(mean.scores)} if mean else {}
        part = mean_scores_part(mean) if mean else None
        files = file_of(self.out, lambda suffix: table_file(suffix, pd.DataFrame(table)))
        view = correlation_view(table, means, part, found.failed)
        if induced is not None and scores:
            kept = capacity_view(induced, scores, next(iter(scores)))
            fields |= {"capacity_left": {each.title: each.rows for each in kept.parts}}
            view = replace(view, finding=f"{view.finding} {kept.finding}", parts=[*view.parts, *kept.parts])
        return _result(found, found.failed, view, fields, files=files)


@dataclass(frozen=True, kw_only=True)
class Sweep(OnRay, OfManyTasks):
    """Measure accuracy across tasks, shot counts, and pruning levels. The value is Swept, or with the preset a
    PaperStudy."""

    command: ClassVar[str] = "sweep"
    group: ClassVar[str] = "Pruning"
    head_levels: str = string(TENTHS, "comma-separated pruning levels of heads, in percent (default: 0,10,...,100)")
    ffn_levels: str = string("0", "comma-separated pruning levels of FFNs, in percent (default: 0)")
    order: str = choice(
        "own",
        OF_MANY_TASKS,
        "pruning order: own (each task's own importance; default), another criterion, or another rule",
    )
    head_score: str = choice(
        "heads",
        HEAD_SCORES,
        "score of heads in the orders own, task, aggregate, others, and rescored: as published, or with one divisor "
        "for all layers (default: heads)",
    )
    source_task: str = string("", "task whose importance is used with --order task", what="task")
    aggregate_tasks: str | None = string(
        None, "comma-separated tasks to aggregate (default: those of --tasks)", what="tasks"
    )
    seed: int = number(0, (0, MOST_SEED), "seed of random orders (default: 0)")
    limit: int = number(48, (1, MOST), "number of questions per task (default: 48)")
    preset: str | None = choice(
        None, ("paper",), "measure the whole paper study, and write tables, figures, and a report to the folder --out"
    )
    out: str | None = output(TABLES, "output file: .csv or .parquet; with --preset, an output folder", is_required=True)

    def check_outputs(self) -> None:
        if not (self.preset and self.out):
            super().check_outputs()
        else:
            writable_folder(self.out)

    def settings(self, n_questions: int | None = None) -> SurveySettings:
        return replace(super().settings(n_questions), heads_by=self.head_score)

    @property
    def levels(self) -> tuple[list[int], list[int]]:
        """The levels of heads and of FFNs, in permille."""
        heads, ffns = (
            [permille(level) for level in names_of(text, ())] for text in (self.head_levels, self.ffn_levels)
        )
        return heads, ffns

    def points(self) -> "list[Point]":
        """The measured points: every task at every level."""
        return sweeps.points(self.grid(), *self.levels, self.order, self.source_task, self.seed)

    def sources(self) -> list[str]:
        """The tasks that aggregates are made of."""
        from engine.studies.paper_study import pool_of

        return pool_of(names_of(self.aggregate_tasks, list(dict.fromkeys(task.name for task in self.grid()))))

    def measurement(self, session: Session) -> "Measurement[Swept]":
        return sweeps.sweep(self.target(session), self.settings(self.limit), self.points(), self.sources())

    def measure(self, run: RequestRun) -> Result:
        import pandas as pd

        from engine.studies.statements import BreakPoint, break_points

        if self.preset:
            return self._paper(run)
        swept, (heads, ffns) = self._measured(run, self.measurement(run.session)), self.levels
        breaks: dict[Axis, list[BreakPoint]] = {}
        if len(heads) > 1:
            breaks["heads"] = break_points([row for row in swept.rows if not row.point.permille("ffns")], "heads")
        if len(ffns) > 1:
            breaks["ffns"] = break_points([row for row in swept.rows if not row.point.permille("heads")], "ffns")
        rows = [row.cells() for row in swept.rows]
        files = file_of(self.out, lambda suffix: table_file(suffix, pd.DataFrame(rows)))
        cells = {axis: [each.cells() for each in points] for axis, points in breaks.items()}
        fields = {"rows": rows, "break_points": cells, "out": self.out}
        return _result(swept, swept.failed, sweep_view(swept, breaks), fields, files=files)

    def _measured(self, run: RequestRun, measurement: Measurement[T]) -> T:
        """The value; before long work, a line says how long it takes here."""
        seconds = None if run.workers else measurement.seconds(run.session)
        if seconds is not None and seconds >= LONG_S:
            announce.get()(f"about {in_time(seconds)}, by earlier passes of this model on this computer")
        return run.value(measurement)

    def _paper(self, run: RequestRun) -> Result:
        """The whole paper study, with its tables in the folder `out` if that is given."""
        import pandas as pd

        from engine.studies.paper_study import paper_study, with_short_names
        from engine.studies.statements import statements, tables

        folder = named(self.out, "--out") if self.out else None
        study = paper_study(self.target(run.session), self.settings(self.limit), self.grid())
        study = with_short_names(self._measured(run, study))
        found = statements(study)
        fields = {"statements": [asdict(each) for each in found], "out": None if folder is None else str(folder)}
        view = statements_view(found, study.failed, str(folder or ""))
        if folder is None:
            return _result(study, study.failed, view, fields)
        frames = tables(study) | {"statements": pd.DataFrame(map(asdict, found))}
        files = {str(folder / f"{name}{ending}"): partial(table_file, ending, frame)
                 for name, frame in frames.items() for ending in TABLES}  # fmt: skip
        return _result(study, study.failed, view, fields, files=files, report_folder=self.out or "")


def writable_folder(path: str) -> Path:
    """The folder that --out names, made where there is none; HeadroomError: nothing can be written there."""
    folder = named(path, "--out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadroomError(f"cannot make the folder {folder} ({error.strerror}); choose another --out") from error
    if not os.access(folder, os.W_OK):
        raise HeadroomError(f"cannot write to {folder} (no permission); choose another --out")
    return folder


def _result(value: Any, failed: Mapping[TaskSpec, str], view: View, fields: dict[str, Any], **kwargs: Any) -> Result:
    """The result with the tasks that could not be measured, and why."""
    reasons = {describe_task(task): reason for task, reason in failed.items()}
    failure = ""
    if reasons and not any(fields.get(name) for name in ("rows", "statements")):
        failure = "nothing could be measured; the lines above say why"
    return Result(value, fields | {"not_measured": reasons}, view, failure=failure, **kwargs)


def _best(scores: Any) -> list[tuple[str, float]]:
    """The highest scores of heads (L, H), or of FFNs (L,), highest first."""
    if scores.ndim == 2:
        return list(best_heads(scores, N_BEST))
    return [(f"F{layer}", float(scores[layer])) for layer in (-scores).argsort(kind="stable")[:N_BEST]]
