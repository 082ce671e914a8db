"""The command of workers, `work`: measures the cells of a plan beside others that do, or says how all of them stand."""

import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.options import MOST, MOST_THREADS, data, data_dir, shared
from engine.cli.output import Report, check_writable, print_result, say, write
from engine.errors import HeadroomError, UsageError
from engine.files import named
from engine.models.session import Session
from engine.placement.placement import PLACE_HELP
from engine.progress import in_time
from engine.studies.surveys import in_words

if TYPE_CHECKING:
    from engine.plans.planning import Planned
    from engine.plans.status import Standing, Worker

LONGEST_LEASE_S = 86_400


def add_parsers(commands: Any) -> None:
    """The parser of work."""
    help = "take cells of a plan until none is left, beside any number of others"
    parser = commands.add_parser("work", parents=[shared(), data()], help=help)
    parser.add_argument("plan", help="the file of `sweep --plan`")
    parser.add_argument("--status", action="store_true", help="measure nothing: say how all workers stand")
    parser.add_argument("--claims", help="folder that all workers see (default: beside the plan, PLAN.claims)")
    help = "seconds without a word from a worker, after which others take its cell (120)"
    parser.add_number("--lease", (1, LONGEST_LEASE_S), help, default=120)
    parser.add_argument("--retry", action="store_true", help="try once more what could not be measured before")
    parser.add_argument("--model", help="where the model is on this machine (default: where the plan says)")
    parser.add_argument("--download", action="store_true", help="fetch from the hub what is not on this computer")
    parser.add_argument("--place", metavar="PLACES", help=PLACE_HELP)
    parser.add_number("--threads", (1, MOST_THREADS), "CPU threads (default: torch's choice)")
    help = "have workers started by Ray: ray (on this computer), or a cluster, ray:auto or ray:HOST:PORT"
    parser.add_argument("--executor", metavar="ray[:ADDRESS]", help=help)
    parser.add_number("--workers", (1, MOST), "how many, with --executor (default: as many as there is room for)")
    parser.add_number("--cpus", (0.01, MOST), "CPUs for each of them (default: 1)", float)
    parser.add_number("--gpus", (0, MOST), "GPUs for each of them (default: 1 where the cluster has any)", float)
    parser.set_defaults(run=_work)


def write_plan(options: Namespace, make: Callable[[], "Planned"]) -> int:
    """Exit code of `sweep --plan`: the cells that `make` gives written to a file, beside those that it has already."""
    from engine.plans.cells import Plan, cost_s, read_plan, written

    check_writable(options.plan)
    file = named(options.plan, "--plan")
    before = read_plan(file) if file.exists() else Plan()
    made = make()
    plan, reasons = made.plan, {in_words(task): reason for task, reason in made.failed.items()}
    if not plan.cells:
        raise HeadroomError(next(iter(reasons.values()), "there is nothing to measure; choose tasks and levels"))
    both = before + plan
    write(str(file), written(both))
    n_scores, n_new = sum(bool(cell.scores) for cell in plan.cells), len(both.cells) - len(before.cells)
    seconds, known = cost_s(plan.cells), "here" if made.is_timed else "by the model's size (nothing was timed here yet)"
    lines = [f"not planned: {task}: {reason}" for task, reason in reasons.items()]
    lines.append(
        f"{len(plan.cells):,} cells, {n_scores:,} of importance and {len(plan.cells) - n_scores:,} of accuracy, "
        f"about {in_time(seconds)} {known}; {n_new:,} are new in {file}; `headroom work {file}` measures them"
    )
    fields = {"plan": str(file), "cells": len(plan.cells), "scores": n_scores, "new": n_new, "cost_s": seconds,
              "timed": made.is_timed}  # fmt: skip
    print_result(options, fields | {"not_planned": reasons}, "\n".join(lines))
    return 0


def _work(options: Namespace, session: Session, report: Report) -> int:
    """Exit code of `work`."""
    from engine.plans.cells import read_plan
    from engine.plans.claims import Claims
    from engine.plans.status import standing

    asked, plan = _asked(options), read_plan(options.plan)
    folder = named(options.claims, "--claims") if options.claims else Path(options.plan).with_suffix(".claims")
    claims, started = Claims(folder, options.lease, options.retry), time.monotonic()
    if options.status:
        stands = standing(plan, claims)
        fields = asdict(stands) | {"plan": options.plan, "claims": str(folder)}
        print_result(options, fields, "\n".join(_told(options.plan, stands)))
        return 0
    if plan.groups:
        options.precision = plan.groups[0].setting.spec.precision  # asked for where the model has to be fetched
    if asked is None:
        tally, by, more = _taken(options, session, report, plan, claims), "this worker", {}
    else:
        tally, by, more = _taken_on_ray(options, session, claims, asked)
    stands = standing(plan, claims)
    lines = [f"not measured: {cell}: {reason}" for cell, reason in stands.failed.items()]
    lines.append(
        f"{tally.measured:,} cells measured by {by} and {tally.cached:,} found stored; "
        f"{stands.done:,} of {stands.cells:,} are done"
    )
    fields = {"plan": options.plan, "claims": str(folder), "cells": stands.cells, "done": stands.done}
    fields |= asdict(tally) | more | {"seconds": time.monotonic() - started, "not_measured": stands.failed}
    print_result(options, fields, "\n".join(lines))
    if stands.cells and not stands.done:
        raise HeadroomError("nothing could be measured; the lines above say why")
    return 0


def _taken(options: Namespace, session: Session, report: Report, plan: Any, claims: Any) -> Any:
    """What this worker has done, once no cell is left."""
    from engine.plans.cells import Cell
    from engine.plans.measuring import Here, in_line, measured, other_fields
    from engine.plans.sharing import share, trouble_teller
    from engine.plans.worker import Outcome, work

    here, n = Here(options.model, data_dir(options)), len(plan.cells)
    if others := other_fields(session, plan, here):
        say(in_line(others))
    tell = trouble_teller(session.store, say)

    def measure(cell: Cell, n_settled: int) -> Outcome:
        report(n_settled, n, str(cell), None)
        found = measured(session, plan, cell, here, lambda message: report(n_settled, n, message, None))
        tell()
        return found

    tell()
    tally = work(plan, claims, measure)
    share(session.store)
    tell()
    return tally


def _taken_on_ray(options: Namespace, session: Session, claims: Any, asked: Any) -> tuple[Any, str, dict[str, int]]:
    """What the actors have done, once no cell is left; who they are, in words; how many, as fields."""
    from engine.plans.measuring import Here
    from engine.plans.on_ray import work_on_ray

    done = work_on_ray(asked, session, options.plan, claims, Here(options.model, data_dir(options)), say)
    by = "1 worker on Ray" if done.workers == 1 else f"{done.workers:,} workers on Ray"
    return done.tally, by, {"workers": done.workers, "restarts": done.restarts}


def _asked(options: Namespace) -> Any:
    """What is asked of Ray; None where no executor is. UsageError where it cannot be meant."""
    given = [name for name in ("workers", "cpus", "gpus") if getattr(options, name) is not None]
    if options.executor is None:
        if given:
            raise UsageError(f"--{given[0]} is for workers that Ray starts; give --executor ray beside it")
        return None
    from engine.plans.clusters import address_of
    from engine.plans.on_ray import RayOptions
    from engine.questions.tasks import may_fetch

    for name in ("cpus", "gpus"):
        n = getattr(options, name) or 0
        if n > 1 and n != int(n):
            raise UsageError(f"--{name} is {n:g}; beyond 1 Ray gives whole ones, so choose {int(n)} or {int(n) + 1}")
    wanted = address_of(options.executor), options.workers, options.cpus, options.gpus
    return RayOptions(*wanted, has_cache=bool(options.cache), may_fetch=options.download or may_fetch())


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
