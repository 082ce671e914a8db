"""The command that forecasts, `plan`: what a model would take on given GPUs, before anything is downloaded."""

from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine.checkpoints.model_config import read_model_config
from engine.checkpoints.names import with_revision
from engine.cli.options import MOST, Parser, names_of, numbers_of, shared
from engine.cli.output import Report, print_result
from engine.errors import UsageError
from engine.models.loading import PRECISIONS
from engine.models.session import Session
from engine.placement.hardware import GPUS, Machine, machine_of
from engine.placement.memory_needed import main_memory_bytes
from engine.progress import in_time
from engine.questions.tasks import HARNESS_TASKS
from engine.studies.surveys import grid

if TYPE_CHECKING:
    from engine.placement.allotment import DeviceShare
    from engine.plans.forecast import Forecast, PassWork

MOST_WORKERS, MOST_GB = 100_000, 1_000_000
DAY_S, SHOWN_BYTES = 86_400, 50_000_000
LENGTHS = "measured: tokens of a question, on samples of each task's rows by OPT's tokenizer"
TURNS = "assumed: the GPUs of one worker take turns, and what is pruned takes no time, spread evenly over the layers"


def add_parsers(commands: Any) -> None:
    """The parser of plan."""
    help = "what a model would take on given GPUs: memory of each, time of a question and of the paper's study"
    parser: Parser = commands.add_parser("plan", parents=[shared()], help=help)
    about = "demo, facebook/opt-125m to facebook/opt-66b, a hub model that is here, or a folder with its config.json"
    parser.add_argument("--model", default="demo", help=about)
    parser.add_argument("--revision", help="branch, tag or commit of a hub model; the same as --model ID@REVISION")
    parser.add_choice("--precision", PRECISIONS, "of the weights (default: int8)", default="int8")
    about = f"such as 2xA100-80GB, or 2x80GB by memory alone; cpu is this machine (default). Known: {', '.join(GPUS)}"
    parser.add_argument("--gpus", default="cpu", help=about)
    about = "gigabytes of main memory for what no GPU has room for (default: what is free here)"
    parser.add_number("--memory", (0, MOST_GB), about, float)
    parser.add_number("--workers", (1, MOST_WORKERS), "how many work at once (default: as many as those GPUs hold)")
    about = "names separated by commas (default: the sixteen of the harness that the papers use)"
    parser.add_argument("--tasks", help=about)
    parser.add_argument("--shots", default="0,1,5", help="shot counts separated by commas (0,1,5)")
    parser.add_number("--limit", (1, MOST), "questions a task in a study (48)", default=48)
    parser.add_number("--ranking-questions", (1, MOST), "train questions behind each ranking of it (64)", default=64)
    parser.set_defaults(run=_plan)


def _plan(options: Namespace, session: Session, report: Report) -> int:
    """Exit code of `plan`."""
    from engine.plans.forecast import forecast

    names, shots = names_of(options.tasks, tuple(HARNESS_TASKS)), sorted(set(numbers_of("--shots", options.shots)))
    if not names or not shots:
        raise UsageError(f"no tasks or shot counts are left of --tasks {options.tasks!r} --shots {options.shots!r}")
    machine, model = machine_of(options.gpus), read_model_config(with_revision(options.model, options.revision))
    memory = main_memory_bytes() if options.memory is None else round(options.memory * 1e9)
    found = forecast(session.store, model, options.precision, machine, grid(names, shots), options.limit,
                     options.ranking_questions, memory)  # fmt: skip
    workers = options.workers or found.n_workers
    print_result(options, _fields(found, workers), "\n".join(_told(found, workers)))
    return 0


def _fields(found: "Forecast", workers: int) -> dict[str, Any]:
    """The forecast for a program."""
    model, allotment, whole = found.model, found.allotment, found.whole_study
    study_s = found.seconds(whole)
    of_questions = {f"{task.name} {task.shots}": _work(found, work) for task, work in found.questions.items()}
    return {
        "model": model.name, "shape": asdict(model.shape), "shape_from": model.source, "precision": found.precision,
        "parameters": model.parts.n_params, "weight_bytes": model.parts.n_bytes(found.precision),
        "gpus": str(found.machine), "fits": allotment.fits, "runs": allotment.runs, "used": allotment.n_used,
        "needed": allotment.n_needed, "place": allotment.place,
        "devices": [{**asdict(share), "total": share.total} for share in allotment.shares],
        "fetched_bytes": {"main memory": allotment.from_main, "disk": allotment.from_disk}, "fetch_s": found.fetch_s,
        "question": _work(found, found.question), "questions": of_questions,
        "study": {name: _work(found, work) for name, work in found.study.items()} | {"whole": _work(found, whole)},
        "workers": workers, "workers_at_once": found.n_workers,
        "study_s": None if study_s is None else study_s / workers,
        "is_measured": found.pace is not None and found.pace.is_measured, "said": _said(found),
    }  # fmt: skip


def _work(found: "Forecast", work: "PassWork") -> dict[str, Any]:
    return {"operations": asdict(work.operations) | {"total": work.operations.total}, "passes": work.reads,
            "cells": work.cells, "seconds": found.seconds(work)}  # fmt: skip


def _told(found: "Forecast", workers: int) -> list[str]:
    """The forecast in lines."""
    model, shape, question, whole_s = found.model, found.model.shape, found.question, found.seconds(found.whole_study)
    tasks, shots = ({getattr(task, name) for task in found.questions} for name in ("name", "shots"))
    counts = ", ".join(map(str, sorted(shots)))
    of = f"{len(tasks)} task{'s' * (len(tasks) > 1)} at {counts} shot{'s' * (counts != '1')}"
    a_pass_s = found.seconds(question.times(1 / question.reads))
    a_pass = "" if a_pass_s is None else f"; a pass over several{_takes(a_pass_s)}"
    parts = [f"{name} {work.cells:,} cells{_takes(found.seconds(work))}" for name, work in found.study.items()]
    lines = [
        f"{model.name} in {found.precision}, by {model.source}: {model.parts.n_params / 1e6:,.0f} M parameters, "
        f"{shape.n_layers} layers x {shape.n_heads} heads, d_model {shape.d_model:,}; "
        f"weights {_gb(model.parts.n_bytes(found.precision))} GB",
        *_places(found),
        f"a question (mean of {of}): {question.operations.total / 1e12:,.3g} tera-operations"
        f"{_takes(found.seconds(question))}{a_pass}",
        f"the study of --preset paper: {'; '.join(parts)}",
    ]  # fmt: skip
    if whole_s is not None:
        by_many = f", {_long(whole_s / workers)} by {workers:,}" if workers > 1 else ""
        lines.append(f"all of it: {_long(whole_s)} by one worker{by_many}")
    return [*lines, *_said(found)]


def _places(found: "Forecast") -> list[str]:
    """Where the model lies, in lines."""
    allotment, machine, fetched = found.allotment, found.machine, []
    if allotment.fits:
        on = f" on {Machine(allotment.n_used, machine.device)}" if allotment.n_used < machine.n else ""
        room = "" if machine.device.is_cpu else f"; room for {found.n_workers:,} worker{'s' * (found.n_workers > 1)}"
        fit = f"it fits{on}{room}"
    elif machine.device.is_cpu:
        fit = "it does not fit"
    elif allotment.n_needed is None:
        fit = "it does not fit, nor on more of them: one is too small"
    else:
        fit = f"it does not fit; {Machine(allotment.n_needed, machine.device)} would hold it"
    if not allotment.runs:
        in_16 = found.precision == "int8" and not machine.device.is_cpu
        fit += "; in bf16 layers may lie in main memory and on disk too" if in_16 else ""
    elif away := allotment.from_main + allotment.from_disk:
        fetched.append(f"each pass fetches {_gb(away)} GB{_takes(found.fetch_s)}; gradients need all layers at once")
    if allotment.place:
        fetched.append(f"HEADROOM_PLACE={allotment.place} lays them so")
    return [f"{machine}{' (this machine)' * machine.device.is_cpu}: {fit}", *map(_line, allotment.shares), *fetched]


def _line(share: "DeviceShare") -> str:
    """What a device holds."""
    layers = f"layers {share.first} to {share.stop - 1}" if share.n_layers else "no layers"
    layers += ", embeddings and unembedding" * share.ends
    room = "" if share.room is None else f" of {_gb(share.room)}"
    parts = [f"{name} {_gb(n)}" for name, n in share.n_bytes.items() if n >= SHOWN_BYTES]
    return f"  {share.device}, {layers}: {_gb(share.total)}{room} GB" + (f" ({', '.join(parts)})" if parts[1:] else "")


def _said(found: "Forecast") -> list[str]:
    """What is measured, and what is assumed."""
    if not found.allotment.runs:
        return [LENGTHS]
    known = "assumed: nothing of how fast these are; a GPU by its name has a time" if found.pace is None else (
        found.pace.said)  # fmt: skip
    return [known, LENGTHS, TURNS]


def _takes(seconds: float | None) -> str:
    return "" if seconds is None else f", {_long(seconds)}"


def _long(seconds: float) -> str:
    """Such as "0.31 s", "4 min", "12 days"."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    return in_time(seconds) if seconds < 3 * DAY_S else f"{seconds / DAY_S:,.0f} days"


def _gb(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:,.1f}"
