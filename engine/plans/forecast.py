"""What a study of a model takes on given devices, before the model is there: memory from its config, and time from what
was timed on such a device before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from cache import Store
from engine.architecture.model_config import ModelConfig
from engine.errors import UsageError
from engine.measurement import Workload
from engine.placement.devices import CPU, DISK, MOST_GPUS, WITHOUT_INT8, Machine
from engine.placement.needs import Needs, study_needs
from engine.placement.placement import place
from engine.plans.planning import n_gone, plain, prunes_some, rendered_questions
from engine.questions.encoding import BATCH_TOKENS
from engine.questions.requests import Questions, TaskSpec
from engine.shapes import ModelShape
from engine.studies.study import paper_points
from engine.studies.surveys import StudySettings
from engine.studies.sweeps import Point
from engine.timing.observed_timings import ScaledTiming, scaled_timing
from engine.timing.workload import all_characters

UNKNOWN_ROOM = 2**63  # of a disk on another machine


@dataclass(frozen=True)
class DeviceShare:
    """What one place ("gpu0", "cpu", "disk") holds: layers from `first` up to but not including `stop`, bytes by
    purpose, and its free bytes (None: not known)."""

    place: str
    first: int
    stop: int
    n_bytes: Mapping[str, int]
    free: int | None

    @property
    def total(self) -> int:
        return sum(self.n_bytes.values())


@dataclass(frozen=True)
class StudyPart:
    """One part of a study: how many cells it has, and the text that their passes read."""

    n_cells: int = 0
    work: Workload = Workload()

    def __add__(self, other: "StudyPart") -> "StudyPart":
        return StudyPart(self.n_cells + other.n_cells, self.work + other.work)


@dataclass(frozen=True)
class Forecast:
    """A model on a machine.

    `shares`: the share of each device that one worker uses; not all layers if they do not fit.
    `n_needed`: how many devices of this kind would hold the whole model; None if no number would.
    `timing`: None if nothing was timed on such a device in this precision.
    `questions`: by task the text of one question (mean), of the tasks whose rows are here.
    `study`: the parts of the paper's preset over these tasks.
    `failed`: tasks without rows, and why.
    """

    model: ModelConfig
    precision: str
    machine: Machine
    shares: tuple[DeviceShare, ...]
    n_needed: int | None
    timing: ScaledTiming | None = None
    questions: Mapping[TaskSpec, Workload] = field(default_factory=dict)
    study: Mapping[str, StudyPart] = field(default_factory=dict)
    failed: Mapping[TaskSpec, str] = field(default_factory=dict)

    @property
    def n_used(self) -> int:
        """Devices that one worker uses."""
        return 1 if self.machine.device.is_cpu else sum(share.place.startswith("gpu") for share in self.shares)

    @property
    def fits(self) -> bool:
        """Whether the devices hold all of it."""
        return self.n_needed is not None and self.n_needed <= self.machine.n

    @property
    def runs(self) -> bool:
        """Whether there is room for everything somewhere."""
        return bool(self.shares) and self.shares[-1].stop == self.model.shape.n_layers

    @property
    def n_workers(self) -> int:
        """How many workers there is room for at once."""
        return max(1, self.machine.n // self.n_used) if self.fits else 1

    @property
    def fetched_bytes(self) -> dict[str, int]:
        """Bytes of weights that each pass moves to the first device, by where they lie ("cpu", "disk")."""
        main = CPU if self.machine.device.is_cpu else "gpu0"
        return {
            share.place: share.n_bytes["weights"]
            for share in self.shares
            if share.place in (CPU, DISK) and share.place != main
        }

    @property
    def place(self) -> str:
        """Where layers lie as HEADROOM_PLACE takes it; "" if that is one device, or nowhere."""
        if not self.runs or len(self.shares) == 1:
            return ""
        return ",".join(f"{each.place}:{each.stop - each.first}" for each in self.shares if each.stop > each.first)

    def seconds(self, work: Workload) -> float | None:
        """Seconds of one worker, without moving layers; None if nothing was timed, or the model does not fit."""
        return None if self.timing is None or not self.runs else self.timing.seconds(work.characters)


def forecast(
    store: Store, model: ModelConfig, machine: Machine, setting: StudySettings, tasks: Sequence[TaskSpec],
    main_memory: int,
) -> Forecast:  # fmt: skip
    """The forecast of a study with this `setting` over these tasks; `main_memory` bytes are free next to the GPUs.
    Questions are rendered only if passes were timed on such a device. UsageError: int8 on GPUs that cannot."""
    device, precision = machine.device, setting.spec.precision
    if precision == "int8" and device.name in WITHOUT_INT8:
        raise UsageError(f"bitsandbytes multiplies in int8 on Turing and later, and {device.name} is older; choose "
                         "--precision bf16")  # fmt: skip
    n_tokens = min(model.shape.n_ctx, BATCH_TOKENS)
    needs = study_needs(model, precision, CPU if device.is_cpu else "cuda", n_tokens)
    shares, n_needed = _shares(needs, machine, main_memory, moves=precision != "int8" or device.is_cpu)
    found = Forecast(model, precision, machine, shares, n_needed, scaled_timing(store, model, precision, device))
    if found.timing is None:
        return found
    failed: dict[TaskSpec, str] = {}
    judged = rendered_questions(partial(setting.judged, store=store), tasks, failed)
    ranked = rendered_questions(partial(setting.ranked, store=store), list(judged), failed)
    judged = {task: judged[task] for task in ranked}
    questions = {task: Workload({"forward": all_characters(each) / max(1, each.n)}) for task, each in judged.items()}
    study = study_parts(model.shape, judged, ranked) if judged else {}
    return replace(found, questions=questions, study=study, failed=failed)


def _shares(
    needs: Needs, machine: Machine, main_memory: int, moves: bool
) -> tuple[tuple[DeviceShare, ...], int | None]:
    """(what each place holds, how many devices would hold all of it); `moves`: layers may lie elsewhere."""
    device = machine.device
    names = [CPU] if device.is_cpu else [f"gpu{number}" for number in range(min(needs.n_layers, MOST_GPUS))]
    rooms = [dict.fromkeys(names[:n], device.n_bytes) for n in range(1, len(names) + 1)]
    n_needed = next((n for n, room in enumerate(rooms, 1) if len(place(needs, room)) == needs.n_layers), None)
    free = rooms[min(machine.n, len(rooms), n_needed or machine.n) - 1]
    if n_needed is None or n_needed > machine.n:
        elsewhere = {DISK: UNKNOWN_ROOM} if device.is_cpu else {CPU: main_memory, DISK: UNKNOWN_ROOM}
        free = free | (elsewhere if moves else {})
    layers, main, shares, first = place(needs, free, "even"), names[0], [], 0
    is_fetching = any(each in (CPU, DISK) and each != main for each in layers)
    for name, room in free.items():
        n = layers.count(name)
        if n or name.startswith("gpu") or name == main:
            n_bytes = needs.at(name, n, main, is_fetching)
            shares.append(DeviceShare(name, first, first + n, n_bytes, None if room == UNKNOWN_ROOM else room))
        first += n
    return tuple(shares), n_needed


def study_parts(
    shape: ModelShape, judged: Mapping[TaskSpec, Questions], ranked: Mapping[TaskSpec, Questions]
) -> dict[str, StudyPart]:
    """The paper's preset by its parts: the cells that `engine.plans.planning.planned` makes of it, and their text."""
    gradients = {task: _gradients(each) for task, each in ranked.items()}
    heads = ffns = accuracies = StudyPart()
    for task, each in ranked.items():
        heads += StudyPart(1, gradients[task])
        read = all_characters(each) * (1 + shape.n_layers / 2)  # a pass without an FFN begins in its layer
        ffns += StudyPart(1, Workload({"forward": read}))
    for points in study_points(shape, list(judged)):
        work = Workload()
        for point in points:
            work += Workload({"forward": point.kept_share * all_characters(judged[point.task])})
            if point.by == "rescored" and prunes_some(shape, point):
                work += gradients[point.task]
        accuracies += StudyPart(1, work)
    return {"importance of heads": heads, "importance of FFNs": ffns, "accuracies": accuracies}


def _gradients(questions: Questions) -> Workload:
    return Workload({"gradient": all_characters(questions, gradients=True, every_choice=False)})


def study_points(shape: ModelShape, tasks: Sequence[TaskSpec]) -> list[tuple[Point, ...]]:
    """The accuracies of the paper's preset, a cell each: several points where they follow from each other; masks that
    are the same whatever the ranking are there once."""
    every = [point for points in paper_points(tasks).values() for point in points]
    alone = [Point(task, 0, 0) for task in tasks]
    alone += [plain(shape, point) for point in every if point.by != "rescored"]
    distinct: dict[object, Point] = {}
    for point in alone:
        whose = (point.by, point.of, point.seed) if prunes_some(shape, point) else None
        distinct.setdefault((point.task, whose, n_gone(shape, point)), point)
    rescored = [tuple(point for point in every if point.by == "rescored" and point.task == task) for task in tasks]
    return [*((point,) for point in distinct.values()), *(points for points in rescored if points)]
