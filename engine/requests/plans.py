"""A worker of a plan: `WorkOnPlan`; and the plan as a file."""

from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from engine.errors import HeadroomError, UsageError
from engine.files import named
from engine.placement.placement import PLACE_HELP
from engine.progress import in_time
from engine.questions.tasks import may_fetch
from engine.requests.base import MOST, MOST_THREADS, RequestRun, Result, WithData
from engine.requests.fields import flag, number, path, string
from engine.requests.output import check_writable, say
from engine.studies.surveys import in_words

if TYPE_CHECKING:
    from engine.plans.cells import Plan
    from engine.plans.claims import Claims
    from engine.plans.on_ray import RayOptions
    from engine.plans.planning import Planned
    from engine.plans.status import Standing, Worker

LONGEST_LEASE_S = 86_400


@dataclass(frozen=True, kw_only=True)
class WorkOnPlan(WithData):
    """Measure the cells of a plan until none are left; any number of workers can run at the same time. The value is the
    Standing of the plan."""

    command: ClassVar[str] = "work"
    plan: str = path(MISSING, "plan file, written by `sweep --plan`", is_position=True)
    status: bool = flag("show the state of all workers, without measuring")
    claims: str | None = path(
        None, ("folder for leases; all workers must be able to access it (default: PLAN.claims next to the plan)")
    )
    lease: int = number(
        120,
        (1, LONGEST_LEASE_S),
        "number of seconds without a heartbeat after which another worker may take over a cell (default: 120)",
    )
    retry: bool = flag("retry failed cells")
    model: str | None = string(None, "path of the model on this machine (default: the path in the plan)")
    download: bool = flag("download missing models and task data from the Hub")
    place: str | None = string(None, PLACE_HELP)
    threads: int | None = number(None, (1, MOST_THREADS), "number of CPU threads (default: chosen by torch)")
    executor: str | None = string(
        None, ("start workers with Ray: ray on this machine, ray:auto or ray:HOST:PORT on an existing cluster")
    )
    workers: int | None = number(None, (1, MOST), "number of workers, with --executor (default: as many as fit)")
    cpus: float | None = number(None, (0.01, MOST), "number of CPUs per worker (default: 1)", float)
    gpus: float | None = number(
        None, (0, MOST), "number of GPUs per worker (default: 1 if the cluster has GPUs)", float
    )

    @cached_property
    def cells(self) -> "Plan":
        """The plan."""
        from engine.plans.cells import read_plan

        return read_plan(self.plan)

    @property
    def precision(self) -> str:
        """What the model is asked for in where it has to be fetched."""
        return self.cells.groups[0].setting.spec.precision if self.cells.groups else "int8"

    def measure(self, run: RequestRun) -> Result:
        from engine.plans.claims import Claims
        from engine.plans.status import standing

        asked, plan = self._asked(), self.cells
        folder = named(self.claims, "--claims") if self.claims else Path(self.plan).with_suffix(".claims")
        claims = Claims(folder, self.lease, self.retry)
        if self.status:
            stands = standing(plan, claims)
            fields = asdict(stands) | {"plan": self.plan, "claims": str(folder)}
            return Result(stands, fields, "\n".join(_told(self.plan, stands)))
        if asked is None:
            tally, by, more = self._taken(run, claims), "this worker", {}
        else:
            tally, by, more = self._taken_on_ray(run, claims, asked)
        stands = standing(plan, claims)
        lines = [f"not measured: {cell}: {reason}" for cell, reason in stands.failed.items()]
        lines.append(
            f"{tally.measured:,} cells measured by {by} and {tally.cached:,} found stored; "
            f"{stands.done:,} of {stands.cells:,} are done"
        )
        fields = {"plan": self.plan, "claims": str(folder), "cells": stands.cells, "done": stands.done}
        fields |= asdict(tally) | more | {"not_measured": stands.failed}
        nothing = stands.cells and not stands.done
        failure = "nothing could be measured; the lines above say why" if nothing else ""
        return Result(stands, fields, "\n".join(lines), failure=failure)

    def _taken(self, run: RequestRun, claims: "Claims") -> Any:
        """What this worker has done, once no cell is left."""
        from engine.plans.measuring import Here, in_line, measure_all, other_fields

        session, here, n = run.session, Here(self.model, self.data_dir), len(self.cells.cells)
        if others := in_line(other_fields(session, self.cells, here)):
            say(others)

        def hear(n_settled: int, message: str) -> None:
            run.report(n_settled, n, message, None)

        return measure_all(session, self.cells, claims, here, hear, say)

    def _taken_on_ray(self, run: RequestRun, claims: "Claims", asked: "RayOptions") -> tuple[Any, str, dict[str, int]]:
        """What the actors have done, once no cell is left; who they are, in words; how many, as fields."""
        from engine.plans.measuring import Here
        from engine.plans.on_ray import work_on_ray

        done = work_on_ray(asked, run.session, self.plan, claims, Here(self.model, self.data_dir), say)
        by = "1 worker on Ray" if done.workers == 1 else f"{done.workers:,} workers on Ray"
        return done.tally, by, {"workers": done.workers, "restarts": done.restarts}

    def _asked(self) -> "RayOptions | None":
        """The options for Ray; None without an executor. UsageError if they do not fit."""
        given = [name for name in ("workers", "cpus", "gpus") if getattr(self, name) is not None]
        if self.executor is None:
            if given:
                raise UsageError(f"--{given[0]} is for workers started by Ray; add --executor ray")
            return None
        from engine.plans.clusters import address_of
        from engine.plans.on_ray import RayOptions

        for name in ("cpus", "gpus"):
            n = getattr(self, name) or 0
            if n > 1 and n != int(n):
                whole = f"choose {int(n)} or {int(n) + 1}"
                raise UsageError(f"--{name} is {n:g}; beyond 1 Ray gives whole ones, so {whole}")
        wanted = address_of(self.executor), self.workers, self.cpus, self.gpus
        return RayOptions(*wanted, has_cache=bool(self.cache), may_fetch=self.download or may_fetch())


def plan_result(path: str, make: "Callable[[], Planned]") -> Result:
    """The result of `sweep --plan`: the cells of `make`, added to those in the file."""
    from engine.plans.cells import Plan, cost_s, read_plan, written

    check_writable(path)
    file = named(path, "--plan")
    before = read_plan(file) if file.exists() else Plan()
    made = make()
    plan, reasons = made.plan, {in_words(task): reason for task, reason in made.failed.items()}
    if not plan.cells:
        raise HeadroomError(next(iter(reasons.values()), "there is nothing to measure; choose tasks and levels"))
    both = before + plan
    n_scores, n_new = sum(bool(cell.scores) for cell in plan.cells), len(both.cells) - len(before.cells)
    seconds, known = cost_s(plan.cells), "here" if made.is_timed else "by the model's size (nothing was timed here yet)"
    lines = [f"not planned: {task}: {reason}" for task, reason in reasons.items()]
    lines.append(
        f"{len(plan.cells):,} cells, {n_scores:,} of importance and {len(plan.cells) - n_scores:,} of accuracy, "
        f"about {in_time(seconds)} {known}; {n_new:,} are new in {file}; `headroom work {file}` measures them"
    )
    fields = {"plan": str(file), "cells": len(plan.cells), "scores": n_scores, "new": n_new, "cost_s": seconds,
              "timed": made.is_timed}  # fmt: skip
    return Result(both, fields | {"not_planned": reasons}, "\n".join(lines), {str(file): partial(written, both)})


def _told(plan: str, stands: "Standing") -> list[str]:
    """How a plan stands, in lines."""
    left = "" if stands.left_s is None or stands.is_over else f", about {in_time(stands.left_s)} left"
    parts = [f"{stands.done:,} of {stands.cells:,} cells are done", f"{stands.in_hand:,} in hand"]
    parts += [f"{stands.lost:,} of lost workers"] if stands.lost else []
    parts += [f"{len(stands.failed):,} cannot be measured"] if stands.failed else []
    n, n_done = stands.cells - stands.scores, stands.done - stands.scores_done
    return [
        f"{plan}: {', '.join(parts)}{left}",
        f"importance {stands.scores_done:,} of {stands.scores:,}, accuracies {n_done:,} of {n:,}; "
        f"{stands.cached:,} were stored already, {stands.twice:,} were measured twice",
        *map(_of_worker, stands.workers),
        *(f"not measured: {cell}: {reason}" for cell, reason in stands.failed.items()),
    ]


def _of_worker(worker: "Worker") -> str:
    words = f"worker {worker.number} ({worker.host} {worker.pid}): {worker.cells:,} cells, {worker.state}"
    if worker.state == "lost":
        words += f" for {in_time(worker.silent_s)}"
    return f"{words}: {worker.in_hand}" if worker.in_hand and worker.state in ("at work", "lost") else words
