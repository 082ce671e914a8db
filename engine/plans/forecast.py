"""What a study of a model would take on given devices, from the model's outline alone: memory, operations, seconds.

Questions are as long as the table of `engine.questions.lengths` has them, and what a pruned model saves is what it
prunes, spread evenly over its layers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from cache import Store
from engine.checkpoints.model_config import ModelConfig
from engine.errors import UsageError
from engine.importance.importance import GRADIENT_TOKENS
from engine.measurement import OPERATIONS_A_SECOND
from engine.placement.allotment import Allotment, Passes, allotted
from engine.placement.hardware import Machine
from engine.placement.pass_memory import TokenCounts
from engine.plans.planning import n_gone, plain, prunes_some
from engine.questions.encoding import BATCH_TOKENS
from engine.questions.lengths import Lengths, lengths_of
from engine.questions.requests import TaskSpec
from engine.shapes import ModelShape
from engine.studies.study import paper_points
from engine.studies.sweeps import Point
from engine.timing.operations import Operations, forward, gradient
from engine.timing.throughput import DISK_BYTES_A_SECOND, UTILISED, Throughput, Typical, processor_pace, throughput_of

UNKNOWN_PROCESSOR = (
    f"assumed: {OPERATIONS_A_SECOND / 1e12:g} tera-operations a second, as of any processor; it is measured here by "
    "whatever is evaluated in that precision"
)


@dataclass(frozen=True)
class PassWork:
    """Passes: their operations, and how often they read the weights of the whole model (part of a model, part of
    that); `cells` counts what is measured in one go, see engine.plans.cells."""

    operations: Operations = Operations()
    reads: float = 0.0
    cells: int = 0

    def __add__(self, other: "PassWork") -> "PassWork":
        return PassWork(self.operations + other.operations, self.reads + other.reads, self.cells + other.cells)

    def times(self, n: float) -> "PassWork":
        """That of n questions, in as many cells."""
        return PassWork(self.operations.times(n), self.reads * n, self.cells)


@dataclass(frozen=True)
class Forecast:
    """`allotment` of the model to devices; `pace` of these, None where nothing is known of them; `questions`, the work
    of one question of each task by the full model; `study`, that of the paper's preset by its parts."""

    model: ModelConfig
    precision: str
    machine: Machine
    allotment: Allotment
    pace: Throughput | None
    questions: Mapping[TaskSpec, PassWork]
    study: Mapping[str, PassWork]

    @property
    def n_workers(self) -> int:
        """How many workers there is room for at once."""
        return max(1, self.machine.n // self.allotment.n_used)

    @cached_property
    def question(self) -> PassWork:
        """A question's mean over the tasks."""
        total = sum(self.questions.values(), PassWork())
        return total.times(1 / len(self.questions))

    @cached_property
    def whole_study(self) -> PassWork:
        return sum(self.study.values(), PassWork())

    @property
    def fetch_s(self) -> float | None:
        """Seconds that a pass waits for layers that no GPU has room for; None where the bus is not known."""
        away, disk, bus = self.allotment.from_main + self.allotment.from_disk, self.allotment.from_disk, 0.0
        if not self.machine.device.is_cpu and away:
            if self.machine.device.bus is None:
                return None
            bus = away / (UTILISED["bus"] * self.machine.device.bus)
        return bus + disk / DISK_BYTES_A_SECOND

    def seconds(self, work: PassWork) -> float | None:
        """Seconds of one worker; None where the pace is not known, or there is no room."""
        if self.pace is None or self.fetch_s is None or not self.allotment.runs:
            return None
        held = self.model.parts.n_bytes(self.precision) - self.allotment.from_main - self.allotment.from_disk
        return self.pace.seconds(work.operations, work.reads * max(0, held)) + work.reads * self.fetch_s


def forecast(
    store: Store, model: ModelConfig, precision: str, machine: Machine, tasks: Sequence[TaskSpec], n_judges: int,
    n_ranking: int, main_memory: int,
) -> Forecast:  # fmt: skip
    """The forecast for these tasks, of which `n_judges` questions judge and `n_ranking` rank; `main_memory` bytes are
    free beside the GPUs. UsageError: a task of unknown length, or int8 on GPUs that have no products for it."""
    device = machine.device
    if precision == "int8" and device.peaks.get("int8") == 0:
        raise UsageError(f"bitsandbytes multiplies in int8 on Turing and later, and {device.name} is older; choose "
                         "--precision bf16")  # fmt: skip
    lengths, is_padded = [lengths_of(task) for task in tasks], _computes_padding(precision, machine)
    longest = min(model.shape.n_ctx, round(max(each.longest for each in lengths)))
    passes = Passes(_pass(max(BATCH_TOKENS, longest), longest), _pass(max(GRADIENT_TOKENS, longest), longest))
    found = throughput_of(store, device, model, precision, _typical(lengths, is_padded))
    if found is None and device.is_cpu:
        found = processor_pace(OPERATIONS_A_SECOND, UNKNOWN_PROCESSOR)
    allotment = allotted(model, precision, machine, passes, main_memory)
    questions = {task: scored(model, task, is_padded) for task in tasks}
    study = study_work(model, tasks, n_judges, n_ranking, is_padded)
    return Forecast(model, precision, machine, allotment, found, questions, study)


def scored(
    model: ModelConfig, task: TaskSpec, is_padded: bool, heads_left: float = 1.0, ffns_left: float = 1.0
) -> PassWork:  # fmt: skip
    """The work of scoring a question of that task."""
    lengths = lengths_of(task)
    reads = (lengths.groups if is_padded else lengths.passes) * max(0.05, (heads_left + 2 * ffns_left) / 3)
    return PassWork(forward(model, lengths.scored(is_padded), heads_left, ffns_left), reads)


def ranked(model: ModelConfig, task: TaskSpec) -> PassWork:
    """The work of a gradient pass over a question with its right answer."""
    lengths = lengths_of(task)
    passes = _gradient_passes(lengths)
    return PassWork(gradient(model, lengths.gold, passes), 2 * passes)


def without_each_ffn(model: ModelConfig, task: TaskSpec, is_padded: bool) -> PassWork:
    """The work of scoring a question by the full model and without each FFN; a pass without one begins in its layer."""
    full, n = scored(model, task, is_padded), model.shape.n_layers
    share, every = 1 + n / 2, Operations(head=full.operations.head).times(n / 2)  # each one's places are read
    return PassWork(full.operations.times(share) + every, full.reads * share)


def study_work(
    model: ModelConfig, tasks: Sequence[TaskSpec], n_judges: int, n_ranking: int, is_padded: bool
) -> dict[str, PassWork]:
    """The work of the paper's preset, by its parts: the cells that `engine.plans.planning.planned` makes of it."""
    heads = ffns = accuracies = PassWork()
    for task in tasks:
        heads += _cell(ranked(model, task).times(n_ranking))
        ffns += _cell(without_each_ffn(model, task, is_padded).times(n_ranking))
    for points in study_points(model.shape, tasks):
        cell = PassWork()
        for point in points:
            left = 1 - point.heads_permille / 1000, 1 - point.ffns_permille / 1000
            cell += scored(model, point.task, is_padded, *left).times(n_judges)
            if point.by == "rescored" and prunes_some(model.shape, point):
                cell += ranked(model, point.task).times(n_ranking)
        accuracies += _cell(cell)
    return {"importance of heads": heads, "importance of FFNs": ffns, "accuracies": accuracies}


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


def _cell(work: PassWork) -> PassWork:
    return PassWork(work.operations, work.reads, 1)


def _computes_padding(precision: str, machine: Machine) -> bool:
    """Whether passes are padded, as they are by bitsandbytes' own int8: on GPUs."""
    return precision == "int8" and not machine.device.is_cpu


def _gradient_passes(lengths: Lengths) -> float:
    """Passes a question: as many rows as there is room for share one."""
    return 1 / max(1, GRADIENT_TOKENS // lengths.gold_tokens)


def _typical(lengths: Sequence[Lengths], is_padded: bool) -> Typical:
    read = sum((each.scored(is_padded) for each in lengths), TokenCounts())
    gold = sum((each.gold for each in lengths), TokenCounts())
    back = partial(gradient, reading=gold, passes=sum(map(_gradient_passes, lengths)))
    return Typical(partial(forward, reading=read), sum(each.characters for each in lengths),
                   back, 2 * sum(each.gold_characters for each in lengths))  # fmt: skip


def _pass(tokens: int, longest: int) -> TokenCounts:
    """A pass over so many tokens in rows of the longest, all of which may be read."""
    return TokenCounts(tokens, tokens * longest, tokens)
