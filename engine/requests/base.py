"""What requests have in common: `Request`, how one is run, and the fields that several share.

A class of requests derives from the classes whose fields it has. Python puts the fields of the last one named first:
`class Evaluate(WithPruning, OfTask)` has those of `OfTask` before those of `WithPruning`.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from engine.checkpoints.names import with_revision
from engine.errors import UsageError
from engine.importance.layers import LAYERS_BY
from engine.importance.orders import OF_ONE_TASK, Pruning, Ranking, orders_of
from engine.importance.rankings import permille
from engine.measurement import Measurement, Steps, Workload
from engine.models.loading import PRECISIONS, LoadSpec
from engine.models.masks import Mask, parse_edits
from engine.models.session import Session, Target
from engine.placement.placement import PLACE_HELP
from engine.progress import Progress, driven, remark
from engine.questions.chats import chat_template
from engine.questions.rendering import SAMPLES, Questions, TaskSpec, render_questions, select
from engine.records import noted
from engine.requests.fields import check_values, choice, flag, number, option_name, options, path, string, switch
from engine.requests.output import check_out, draw_report, say, write_files
from engine.requests.running import (
    NotStored,
    ProgressBar,
    Report,
    RequestRun,
    Result,
    StoredOnly,
    StoredRun,
    opened,
    silent,
)
from engine.requests.shared_fields import (
    AS_CHAT,
    MOST,
    MOST_SEED,
    MOST_THREADS,
    SAME_EXAMPLES,
    examples_in_prompt,
    labels_of_examples,
    training_questions,
)

if TYPE_CHECKING:
    from engine.distributed.driver import Workers

T = TypeVar("T")


def gives(request: type["Request"]) -> str:
    """What a request does: the first sentence of its docstring, without its period."""
    return " ".join((request.__doc__ or "").split()).partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to the engine, the same for a screen, a command and a program.

    `command` is its name on the command line; the first sentence of its docstring says there what it gives.
    `group`: of which measurements it is one on the bench; "": it writes or lists something, and is not on it.
    `is_measured`: its fields say how long it took, and whether all of it was stored.
    """

    command: ClassVar[str]
    group: ClassVar[str] = ""
    is_measured: ClassVar[bool] = True

    cache: str | None = path(
        None,
        "folder of the result store (default: $HEADROOM_CACHE; otherwise cache/data in a clone, or the "
        "user cache folder of an installed package)",
    )
    json: bool = flag("print the result as one JSON object on standard output", is_output=True)

    def __post_init__(self) -> None:
        check_values(self)

    def run(self, session: Session | None = None, report: Report | None = None, *, ray: str | None = None) -> Result:
        """The result; missing records are measured, and the files that it names are written. Without a session, the
        store is opened and closed again, and without `report` too, progress is a bar in a terminal or notebook.
        Interrupted, what is finished is kept. `ray` sets the field of this name: "local", or the address of a cluster.

        >>> Evaluate(task="demo_copy", limit=4).run().fields["n"]
        4
        """
        if ray is not None:
            if not isinstance(self, OnRay):
                those = ", ".join(sorted(each.__name__ for each in OnRay.__subclasses__()))
                raise UsageError(f"ray={ray!r}: {type(self).__name__} is not measured by workers; choose from {those}")
            return replace(self, ray=ray).run(session, report)
        if session is None:
            with opened(self) as own, ProgressBar() as bar:
                return self.run(own, report or bar)
        self.check_outputs()
        session.failures.clear()  # of an earlier run: they are tried again
        with _workers_of(self) as workers:
            result = self._noted(RequestRun(session, report or silent, workers))
        write_files(result.files)
        if result.report_folder and not result.failure:
            draw_report(result.value, result.report_folder)
        return result

    def check_outputs(self) -> None:
        """Before any work: HeadroomError if a file that is to be written cannot be."""
        for name, (_, option) in options(self).items():
            if option.is_output and option.kind == "path" and (path := getattr(self, name)):
                check_out(path, option.endings, option_name(name, option))

    def stored(self, session: Session | None = None) -> Result | None:
        """The result if all of it is stored, or else None; measures nothing."""
        try:
            return self._stored(session)
        except NotStored:
            return None

    def left(self, session: Session | None = None) -> float | None:
        """About how many seconds the first missing part takes here, 0 if all is stored, or None if that is unknown.
        What comes after that part may depend on it."""
        if session is None:
            with opened(self) as own:
                return self.left(own)
        try:
            self._stored(session)
        except NotStored as missing:
            part = missing.part
            return None if part is None else part.left(session).seconds_by_size(session.store, part.target)
        return 0.0

    def whole(self, target: Target) -> Measurement[Result]:
        """The request as one measurement of this model: its parts one after the other, then the result."""

        def steps(session: Session, measures: bool) -> Steps[Result]:
            measured = set[str]()
            while True:
                try:
                    result = self._stored(session)
                except NotStored as missing:
                    part = missing.part
                    if part is None or part.key in measured:
                        raise TypeError(f"{type(self).__name__} measures something that is not stored") from missing
                    measured.add(part.key)
                    left = yield from driven(part.steps(session, measures), Progress.within)
                    if not measures:
                        return left or {part.key: Workload}
                else:
                    yield Progress(1, 1, result, cached=True)
                    return {}

        return Measurement(target, (self,), steps)

    def _stored(self, session: Session | None) -> Result:
        """The result; NotStored if a part is missing."""
        if session is None:
            with opened(self) as own:
                return self._stored(own)
        return self._noted(StoredRun(StoredOnly(session.store, shipped=session.shipped), silent))

    def _noted(self, run: RequestRun) -> Result:
        """The result, with the receipts of what was read and stored for it."""
        notes, remarks = dict[bytes, Any](), dict[str, None]()
        token = remark.set(remarks.setdefault)
        try:
            with noted(notes):
                result = self.measure(run)
        finally:
            remark.reset(token)
        result = replace(result, receipts=tuple(each for each in notes.values() if "measured_at" in each))
        if remarks:
            view = replace(result.view, notes=(*result.view.notes, *remarks))
            result = replace(result, view=view, fields={**result.fields, "remarks": [*remarks]})
        if not self.is_measured:
            return result
        taken = "from the store" if run.cached else f"measured in {run.seconds:.1f} s"
        return replace(result, taken=taken, fields={"seconds": run.seconds, "cached": run.cached, **result.fields})

    def measure(self, run: RequestRun) -> Result:
        """The result, without how long it took and whether it was stored."""
        raise NotImplementedError

    def target(self, session: Session) -> Target:
        """The model that it measures, or of several the first. TypeError: it measures none."""
        raise TypeError(f"{type(self).__name__} measures no model")

    def measurement(self, session: Session) -> Measurement[Any]:
        """The measurement, for requests that are one. TypeError: it is several."""
        raise TypeError(f"{type(self).__name__} is more than one measurement; run it")


@dataclass(frozen=True, kw_only=True)
class OfModel(Request):
    """Which model, and how it is run."""

    model: str = string(
        "demo",
        "demo (the included model), a Hub id such as facebook/opt-125m, a local folder, a GGUF file, or a snapshot of "
        "a training run such as RUN@step512",
    )
    revision: str | None = string(None, "branch, tag, or commit of a Hub model; the same as --model ID@REVISION")
    download: bool = flag(
        "download a missing model or missing task data from the Hub without asking (default: ask in a "
        "terminal, otherwise stop with an error)"
    )
    precision: str = choice("int8", PRECISIONS, "precision of the weights (default: int8)")
    int8_threshold: float = number(6.0, (0, MOST), "outlier threshold of bitsandbytes (default: 6.0)", float)
    bos: bool | None = switch("prepend the beginning-of-sequence token (default: as the tokenizer does)")
    place: str | None = string(None, PLACE_HELP)
    threads: int | None = number(None, (1, MOST_THREADS), "number of CPU threads (default: chosen by torch)")

    @property
    def spec(self) -> LoadSpec:
        """Which model, as the engine names it."""
        return LoadSpec(with_revision(self.model, self.revision), self.precision, self.int8_threshold)

    def target(self, session: Session) -> Target:
        """The model, its precision and its beginning token."""
        return session.target(self.spec, self.bos)


@dataclass(frozen=True, kw_only=True)
class OnRay(Request):
    """Whether workers of Ray measure, and which."""

    ray: str | None = string(
        None,
        "measure with the workers of Ray: on this computer, or on the cluster at ADDRESS (auto, or HOST:PORT)",
        metavar="ADDRESS",
        alone="local",
        is_output=True,
    )
    workers: int | None = number(None, (1, MOST), "workers, with --ray (default: as many as fit)", is_output=True)
    cpus: float | None = number(None, (0.01, MOST), "CPUs per worker, with --ray (default: 1)", float, is_output=True)
    gpus: float | None = number(
        None, (0, MOST), "GPUs per worker, with --ray (default: 1 if the cluster has GPUs)", float, is_output=True
    )


def _workers_of(request: Request) -> "AbstractContextManager[Workers | None]":
    """The workers that measure for a run; None: this process does."""
    if not isinstance(request, OnRay):
        return nullcontext()
    given = [name for name in ("workers", "cpus", "gpus") if getattr(request, name) is not None]
    if request.ray is None:
        if given:
            raise UsageError(f"--{given[0]} is for the workers of Ray; add --ray")
        return nullcontext()
    from engine.distributed.clusters import RayOptions
    from engine.distributed.driver import Workers

    return Workers(RayOptions(request.ray, request.workers, request.cpus, request.gpus), say)


@dataclass(frozen=True, kw_only=True)
class WithData(Request):
    """Where tasks come from."""

    task_data: str | None = path(
        None, ("folder with <task>/train.jsonl and <task>/validation.jsonl (default: $HEADROOM_TASK_DATA)")
    )

    @property
    def data_dir(self) -> str | None:
        """The folder with task data, or None."""
        return self.task_data or os.environ.get("HEADROOM_TASK_DATA") or None


@dataclass(frozen=True, kw_only=True)
class NamesTask(WithData, OfModel):
    """A model, and one task."""

    task: str = string(
        MISSING,
        (
            "task name (`headroom tasks` lists them), or a .jsonl file with context, choices, and gold, "
            "or a .csv file of word pairs"
        ),
        what="task",
    )
    shots: int = examples_in_prompt()
    same_examples: bool = flag(SAME_EXAMPLES)
    labels: str = labels_of_examples()
    chat: bool = flag(AS_CHAT)

    def task_spec(self, session: Session, split: str = "validation") -> TaskSpec:
        """Which questions, as the engine names them."""
        chat = chat_template(self.target(session).identity) if self.chat else None
        return TaskSpec(self.task, self.shots, split, same_examples=self.same_examples, chat=chat, labels=self.labels)


@dataclass(frozen=True, kw_only=True)
class OfTask(NamesTask):
    """A model, and questions of one task."""

    limit: int | None = number(None, (1, MOST), "number of questions (default: all)")
    sample: str = choice(
        "first",
        SAMPLES,
        "which questions --limit selects: the first ones, as in lm-evaluation-harness (default), or a "
        "stratified sample",
    )

    def questions(self, session: Session, split: str) -> Questions:
        """The questions of a split."""
        return selected(self.task_spec(session, split), self.data_dir, session, self.limit, self.sample)


@dataclass(frozen=True, kw_only=True)
class WithPruning(Request):
    """Levels of a pruning order, and a mask."""

    mask: str = string(
        "",
        "components to prune in addition to --prune-heads, --prune-ffns, and --prune-layers, such as "
        '"L3H5 L4H* F7 F2-5 B9 keep L1H0"',
    )
    prune_heads: str = string("0", "percentage of heads to prune, in the order given by --order (default: 0)")
    prune_ffns: str = string("0", "percentage of FFNs to prune, in the order given by --order (default: 0)")
    order: str = choice(
        "importance",
        OF_ONE_TASK,
        "pruning order: a criterion, whose lowest scores are pruned first, or another rule (default: importance)",
    )
    prune_layers: str = string(
        "0", "percentage of whole layers to drop, in the order given by --layer-order (default: 0)"
    )
    layer_order: str = choice(
        "influence",
        LAYERS_BY,
        "order in which layers are dropped. influence (default): lowest block influence first; oracle: "
        "smallest loss of accuracy first; greedy: like oracle, but measured again after each step; "
        "last-first: deepest layers first; random: a seeded random order",
    )
    order_questions: int | None = training_questions(None)
    seed: int = number(0, (0, MOST_SEED), "seed of random orders (default: 0)")

    def pruning(self, task: TaskSpec, target: Target) -> Pruning:
        """The levels by a ranking of `task`, and the mask on top."""
        heads, ffns, layers = map(permille, (self.prune_heads, self.prune_ffns, self.prune_layers))
        ranking = Ranking(self.order, self.seed, self.order_questions, layers_by=self.layer_order)
        return Pruning(task, ranking, heads, ffns, parse_edits(self.mask, target.shape), layers)


def mask_of(run: RequestRun, target: Target, pruning: Pruning, data_dir: str | None) -> Mask:
    """What a pruning prunes; the ranking is measured where its levels need one."""
    if not pruning.by_level:
        return pruning.typed.alone
    return pruning.mask(run.value(orders_of(target, pruning, data_dir)))


def task_named(name: str | None, shots: int, same_examples: bool, labels: str) -> TaskSpec | None:
    """A task as the engine names it; None where none is named."""
    return TaskSpec(name, shots, same_examples=same_examples, labels=labels) if name else None


def selected(
    task: TaskSpec, data_dir: str | None, session: Session, limit: int | None, sample: str = "stratified"
) -> Questions:
    """At most `limit` questions of a task; of a very long file no more are read than are wanted."""
    first = limit if sample == "first" else 0
    return select(render_questions(task, data_dir, session.store, first), limit, sample)
