"""What a model takes on given devices, before it is there: `ForecastStudy`."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from engine.checkpoints.config_lookup import read_model_config
from engine.checkpoints.names import with_revision
from engine.errors import UsageError
from engine.models.loading import PRECISIONS, LoadSpec
from engine.placement.devices import GPUS, Machine, machine_of, main_memory_bytes
from engine.progress import in_time
from engine.questions.requests import MAX_SHOTS
from engine.requests.base import MOST, RequestRun, Result, training_questions
from engine.requests.fields import choice, number, string
from engine.requests.studies import NamesTasks
from engine.studies.surveys import StudySettings, in_words

if TYPE_CHECKING:
    from engine.plans.forecast import DeviceShare, Forecast

MOST_WORKERS, MOST_GB = 100_000, 1_000_000
DAY_S, SHOWN_BYTES = 86_400, 50_000_000
PLACES = {"cpu": "main memory", "disk": "disk"}
NOT_TIMED = (
    "no timings for this device yet: evaluate any model in {} on it, with the same store, and run this command again"
)


@dataclass(frozen=True, kw_only=True)
class ForecastStudy(NamesTasks):
    """Estimate a model's memory use on given GPUs and, if timings for the device exist, the duration of a study. The
    value is a Forecast."""

    command: ClassVar[str] = "plan"
    is_measured: ClassVar[bool] = False
    model: str = string(
        "demo",
        "demo, facebook/opt-125m to facebook/opt-66b, a downloaded Hub model, a GGUF file, or a folder with a "
        "config.json",
    )
    revision: str | None = string(None, "branch, tag, or commit of a Hub model; the same as --model ID@REVISION")
    precision: str = choice("int8", PRECISIONS, "precision of the weights (default: int8)")
    gpus: str = string(
        "cpu",
        "GPUs as COUNTxNAME (2xA100-80GB) or COUNTxMEMORY (2x80GB), or cpu for this machine (default). "
        f"Known names: {', '.join(GPUS)}",
    )
    memory: float | None = number(
        None,
        (0, MOST_GB),
        "gigabytes of main memory for layers that do not fit on the GPUs (default: the free memory of this machine)",
        float,
    )
    workers: int | None = number(
        None, (1, MOST_WORKERS), "number of workers that run at the same time (default: as many as fit on the GPUs)"
    )
    limit: int = number(48, (1, MOST), "number of questions per task of the study (default: 48)")
    order_questions: int = training_questions(help="number of training questions per pruning order (default: 64)")

    def measure(self, run: RequestRun) -> Result:
        from engine.plans.forecast import forecast

        tasks, machine = self.grid(), machine_of(self.gpus)
        if not all(0 <= task.shots <= MAX_SHOTS for task in tasks):
            raise UsageError(f"--shots {self.shots!r}: expected numbers from 0 to {MAX_SHOTS}")
        model = read_model_config(with_revision(self.model, self.revision))
        memory = main_memory_bytes() if self.memory is None else round(self.memory * 1e9)
        spec = LoadSpec(self.model, self.precision)
        setting = StudySettings(spec, None, self.data_dir, self.limit, self.order_questions)
        found = forecast(run.session.store, model, machine, setting, tasks, memory)
        workers = self.workers or found.n_workers
        return Result(found, _fields(found, workers), "\n".join(_lines(found, workers)))


def _fields(found: "Forecast", workers: int) -> dict[str, Any]:
    """The forecast for a program."""
    model, study_s = found.model, _study_s(found)
    study = {name: {"cells": part.n_cells, "seconds": found.seconds(part.work)} for name, part in found.study.items()}
    return {
        "model": model.name, "shape": asdict(model.shape), "shape_from": model.source, "precision": found.precision,
        "parameters": model.parts.n_params, "weight_bytes": model.parts.n_bytes(found.precision),
        "gpus": str(found.machine), "fits": found.fits, "runs": found.runs, "used": found.n_used,
        "needed": found.n_needed, "place": found.place,
        "devices": [{**asdict(share), "total": share.total} for share in found.shares],
        "fetched_bytes": found.fetched_bytes,
        "question_s": {in_words(task): found.seconds(work) for task, work in found.questions.items()},
        "study": study, "workers": workers, "workers_at_once": found.n_workers,
        "study_s": None if study_s is None else study_s / workers,
        "timed": found.timing and found.timing.source,
        "not_measured": {in_words(task): reason for task, reason in found.failed.items()},
    }  # fmt: skip


def _study_s(found: "Forecast") -> float | None:
    """Seconds of the whole study by one worker."""
    each = [found.seconds(part.work) for part in found.study.values()]
    return sum(filter(None, each)) if each and None not in each else None


def _lines(found: "Forecast", workers: int) -> Iterator[str]:
    """The forecast in lines."""
    model, shape = found.model, found.model.shape
    yield (
        f"{model.name} in {found.precision} (from {model.source}): {model.parts.n_params / 1e6:,.0f}M parameters, "
        f"{shape.n_layers} layers x {shape.n_heads} heads, d_model {shape.d_model:,}; "
        f"weights {_gb(model.parts.n_bytes(found.precision))} GB"
    )
    yield f"{found.machine}{' (this machine)' * found.machine.device.is_cpu}: {_fit(found)}"
    yield from map(_share_line, found.shares)
    if found.runs and found.fetched_bytes:
        fetched = _gb(sum(found.fetched_bytes.values()))
        yield (
            f"each pass also fetches {fetched} GB, which the times below do not include; gradients need all layers "
            "at once"
        )
    if found.place:
        yield f"to place the layers like this, set HEADROOM_PLACE={found.place}"
    if found.timing is None:
        yield NOT_TIMED.format(found.precision)
        return
    study_s = _study_s(found)
    if study_s is not None:
        of_one = [found.seconds(work) or 0.0 for work in found.questions.values()]
        yield f"a question (mean of {len(of_one)} tasks and shot counts): {_time(sum(of_one) / len(of_one))}"
        parts = (f"{name} {part.n_cells:,} cells, {_time(found.seconds(part.work) or 0.0)}"
                 for name, part in found.study.items())  # fmt: skip
        yield f"the study of --preset paper: {'; '.join(parts)}"
        by_many = f", {_time(study_s / workers)} by {workers:,}" if workers > 1 else ""
        yield f"all of it: {_time(study_s)} by one worker{by_many}"
    yield f"timed: {found.timing.source}; scaled by operations"
    reasons = {task.name: reason for task, reason in found.failed.items()}
    yield from (f"not timed: {name}: {reason}" for name, reason in reasons.items())


def _fit(found: "Forecast") -> str:
    """Whether the model fits, and if not, what would hold it."""
    machine = found.machine
    if found.fits:
        on = f" on {Machine(found.n_used, machine.device)}" if found.n_used < machine.n else ""
        room = "" if machine.device.is_cpu else f"; room for {found.n_workers:,} worker{'s' * (found.n_workers > 1)}"
        return f"it fits{on}{room}"
    if machine.device.is_cpu:
        return "it does not fit"
    if found.n_needed is None:
        line = "it does not fit on any number of them: each one is too small"
    else:
        line = f"it does not fit; {Machine(found.n_needed, machine.device)} would hold it"
    return (
        line
        if found.runs or found.precision != "int8"
        else f"{line}; in bf16, layers can also be placed in main memory and on disk"
    )


def _share_line(share: "DeviceShare") -> str:
    """What one place holds."""
    layers = f"layers {share.first} to {share.stop - 1}" if share.stop > share.first else "no layers"
    room = "" if share.free is None else f" of {_gb(share.free)}"
    parts = [f"{name} {_gb(n)}" for name, n in share.n_bytes.items() if n >= SHOWN_BYTES]
    detail = f" ({', '.join(parts)})" if parts[1:] else ""
    name = PLACES.get(share.place) or f"GPU {share.place.removeprefix('gpu')}"
    return f"  {name}, {layers}: {_gb(share.total)}{room} GB{detail}"


def _time(seconds: float) -> str:
    """Such as "0.31 s", "4 min", "12 days"."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    return in_time(seconds) if seconds < 3 * DAY_S else f"{seconds / DAY_S:,.0f} days"


def _gb(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:,.1f}"
