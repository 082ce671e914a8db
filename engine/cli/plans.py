"""The command of workers, `work`: measures the cells of a plan beside others that do, or says how all of them stand."""

import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.options import MOST_THREADS, data, data_dir, shared
from engine.cli.output import Report, check_writable, print_result, say, write
from engine.errors import HeadroomError
from engine.files import is_file, named
from engine.models.placing import PLACE_HELP
from engine.models.subject import Lab
from engine.progress import in_time
from engine.studies.surveys import in_words

if TYPE_CHECKING:
    from cache import Store
    from engine.plans.planning import Planned
    from engine.plans.status import Standing, Worker

LONGEST_LEASE_S = 86_400
SHARES_S = 300.0  # that a worker waits at its end for a shared place to come back


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
    parser.set_defaults(run=_work)


def write_plan(options: Namespace, make: Callable[[], "Planned"]) -> int:
    """Exit code of `sweep --plan`: the cells that `make` gives written to a file, beside those that it has already."""
    from engine.plans.cells import Plan, cost_s, read_plan, written

    check_writable(options.plan)
    file = named(options.plan, "--plan")
    before = read_plan(file) if is_file(file) else Plan()
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


def _work(options: Namespace, lab: Lab, report: Report) -> int:
    """Exit code of `work`."""
    from engine.plans.cells import read_plan
    from engine.plans.claims import Claims
    from engine.plans.status import standing

    plan = read_plan(options.plan)
    folder = named(options.claims, "--claims") if options.claims else Path(options.plan).with_suffix(".claims")
    claims, started = Claims(folder, options.lease, options.retry), time.monotonic()
    if options.status:
        stands = standing(plan, claims)
        fields = asdict(stands) | {"plan": options.plan, "claims": str(folder)}
        print_result(options, fields, "\n".join(_told(options.plan, stands)))
        return 0
    tally = _taken(options, lab, report, plan, claims)
    stands = standing(plan, claims)
    lines = [f"not measured: {cell}: {reason}" for cell, reason in stands.failed.items()]
    lines.append(
        f"{tally.measured:,} cells measured by this worker and {tally.cached:,} found stored; "
        f"{stands.done:,} of {stands.cells:,} are done"
    )
    fields = {"plan": options.plan, "claims": str(folder), "cells": stands.cells, "done": stands.done}
    fields |= asdict(tally) | {"seconds": time.monotonic() - started, "not_measured": stands.failed}
    print_result(options, fields, "\n".join(lines))
    if stands.cells and not stands.done:
        raise HeadroomError("nothing could be measured; the lines above say why")
    return 0


def _taken(options: Namespace, lab: Lab, report: Report, plan: Any, claims: Any) -> Any:
    """What this worker has done, once no cell is left."""
    from engine.models.tuning import PINNED, pinned_as
    from engine.plans.cells import Cell
    from engine.plans.measuring import Here, measured, other_fields
    from engine.plans.worker import Outcome, work

    here, n = Here(options.model, data_dir(options)), len(plan.cells)
    if plan.groups:
        options.precision = plan.groups[0].setting.spec.precision  # asked for where the model has to be fetched
    if others := other_fields(lab, plan, here):
        names = "; ".join(f"{name} {there} there, {mine} here" for name, (there, mine) in others.items())
        told = "other than where the plan was written, and results are found where it is the same"
        ways = others.get("products", ({}, None))[0]
        pin = f"; {PINNED}={pinned_as(ways)} computes as there" if "products" in others else ""
        say(f"{told}: {names}{pin}")
    tell = _trouble_teller(lab.store)

    def measure(cell: Cell, n_settled: int) -> Outcome:
        report(n_settled, n, str(cell), None)
        found = measured(lab, plan, cell, here, lambda message: report(n_settled, n, message, None))
        tell()
        return found

    tell()
    tally = work(plan, claims, measure)
    _share(lab.store)
    tell()
    return tally


def _share(store: "Store") -> None:
    """Waits until all that was measured is shared: this machine's disk may be gone with the job. HeadroomError where
    it cannot be."""
    end_s, pause_s = time.monotonic() + SHARES_S, 0.1
    while n := store.share():
        if time.monotonic() >= end_s:
            why = store.trouble or "writing them takes long"
            raise HeadroomError(f"{n:,} results of this worker are in its own store alone: {why}; `cache push` "
                                "on this machine brings them there")  # fmt: skip
        time.sleep(pause_s)
        pause_s = min(5.0, 2 * pause_s)


def _trouble_teller(store: "Store") -> Callable[[], None]:
    """What says on standard error that results cannot be shared or kept, once and again where that changes: a worker
    goes on, and whoever waits for its results elsewhere should know."""
    said: str | None = None

    def tell() -> None:
        nonlocal said
        if (trouble := store.trouble) != said:
            said = trouble
            say(store.notice or "results are kept and shared again")

    return tell


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
