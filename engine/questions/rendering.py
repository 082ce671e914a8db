"""Questions as text: a harness task rendered once into ordered, hashed, immutable questions.

Prompts, choices, few-shot draws and what counts as right are lm-evaluation-harness's own: its task objects are asked,
nothing is rewritten here. Tokens come later (`engine.questions.encoding`), so one rendering serves every model.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from cache import Store
from engine.errors import HeadroomError, NotHere, UsageError
from engine.memory import Kept
from engine.progress import leave_to_measuring, may_stop, remark, tell
from engine.questions import lm_eval_internals, rows
from engine.questions.chats import ChatTemplate
from engine.questions.harness import Chats, golds_and_lengths, harness_task_of
from engine.questions.labels import LABELS, ShuffledAnswers, shuffle_answers, use_words
from engine.questions.tasks import OWN_SUFFIXES, SPLITS, TaskInfo, local_files, may_fetch, task_info
from engine.records import Record, canonical_key, decode, encode, made_of, version
from engine.shipped import shipped_records

HARNESS_SEED = 1234  # what lm-eval's own command line passes to set_fewshot_seed
MAX_SHOTS = 64
CHUNK = 16  # questions stored together and scored in one fixed packing
REPORTED = 1000  # questions rendered between two progress reports
SMALL_CHUNK = 4  # the same where 16 would take long; divides CHUNK
PARSED_BYTES = 64_000_000  # of rendered text whose questions are kept: a sweep asks for the same ones again and again


@dataclass(frozen=True)
class TaskSpec:
    """Which questions: task name (or a `.jsonl` file), number of examples in the prompt, split, few-shot seed.

    The harness draws other examples for each question. With `same_examples` all questions have those that it draws for
    the first: not its numbers, but scored several times as fast. With `chat`, prompts are rendered by this chat
    template, as the harness does with `--apply_chat_template`: examples are turns of the user and the assistant.
    `labels` of the examples (`engine.questions.labels`): with `unrelated`, a question's choices are these words too.
    """

    name: str
    shots: int = 0
    split: str = "validation"
    seed: int = HARNESS_SEED
    same_examples: bool = False
    chat: ChatTemplate | None = None
    labels: str = "true"

    def __post_init__(self) -> None:
        if not 0 <= self.shots <= MAX_SHOTS:
            raise UsageError(f"shots is {self.shots}; choose 0 to {MAX_SHOTS}")
        if self.split not in SPLITS:
            raise UsageError(f"split {self.split!r} is unknown; choose {' or '.join(SPLITS)}")
        if self.labels not in LABELS:
            raise UsageError(f"labels {self.labels!r} are unknown; choose {', '.join(LABELS)}")

    def fields(self) -> dict[str, Any]:
        """Its fields for keys and receipts: those of earlier versions, and what is not as it was in them."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("chat", "labels")}
        own |= {"chat": self.chat.digest} if self.chat else {}
        return own | ({"labels": self.labels} if self.labels != "true" else {})

    @property
    def title(self) -> str:
        """Its name on screens: of a file without its folder."""
        return Path(self.name).name if self.name.endswith(OWN_SUFFIXES) else self.name

    @property
    def manner(self) -> str:
        """How prompts are written, such as ", as chats, shuffled labels"; "" by default."""
        return ", as chats" * bool(self.chat) + f", {self.labels} labels" * (self.labels != "true")


class TooFewRows(HeadroomError):
    """There are fewer rows than examples; `details` says how many of each, as TooFewExamples."""

    def __init__(self, task: TaskSpec, n_rows: int) -> None:
        super().__init__(
            f"task {task.name}: too few rows for {task.shots} examples in front of each question: there are "
            f"{n_rows}, and none is its own example; add rows, or take fewer examples"
        )
        self.details = TooFewExamples(n_rows, task.shots)


@dataclass(frozen=True)
class TooFewExamples:
    """How many rows there are, and how many examples were to stand in front of each question."""

    n_rows: int
    shots: int


@dataclass(frozen=True)
class Question:
    """One question: a context and a continuation for each choice; `golds` are the choices that count as right.

    `n_chars` are the choices' lengths for acc_norm; `digest` is that of the rendered text and identifies the question.
    """

    doc_id: int
    contexts: tuple[str, ...]
    continuations: tuple[str, ...]
    golds: tuple[int, ...]
    n_chars: tuple[int, ...]
    digest: str


@dataclass(frozen=True)
class RenderedQuestions:
    """All questions of a task in dataset order.

    greedy: right means that greedy decoding gives the continuation
    labels_kept: the share of examples (0-1) that have their own answer although labels are shuffled
    own: the user's own file that they are from, if they are
    """

    task: TaskSpec
    questions: tuple[Question, ...]
    greedy: bool
    source: str
    chance: float
    labels_kept: float = 0.0
    own: rows.OwnFile | None = None


Rendered = tuple[tuple[Question, ...], bool, float]  # questions, greedy, labels_kept
# One for the process and all of its threads: a value depends on nothing but its key, the digest of the rendered text.
# Holds PARSED_BYTES of text at most.
PARSED_QUESTIONS: "Kept[Rendered]" = Kept(PARSED_BYTES)


def render_questions(
    task: TaskSpec, data_dir: str | Path | None = None, store: Store | None = None, first: int | None = 0
) -> RenderedQuestions:
    """The rendered questions of `task`, from `store` where they were rendered before.

    Rows come from the embedded suite, from `data_dir`/<task>/<split>.jsonl, or else from the hub: NotHere where nobody
    has agreed to that (`engine.questions.tasks.agree_to_fetch`). HeadroomError names missing or malformed input. Of a
    file of very many rows (`rows.LARGE`) only the `first` are rendered, or where that is 0 a sample; None: all of them.
    """
    info = task_info(task.name)
    local_rows, source, more = _given(task, info, data_dir, first), "hub", {}
    if local_rows is not None:
        source = f"file {local_rows.digest}"
        if local_rows.is_parted:
            more["parted"] = rows.TRAIN_SHARE
        if local_rows.is_large:
            more["drawn"] = [rows.SAMPLED, first]
    name = Path(task.name).name if task.name.endswith(OWN_SUFFIXES) else task.name
    fields = {**task.fields(), "name": name, "source": source, "lm_eval": version("lm_eval")}
    key = canonical_key("requests", fields | more)
    rendered = made_of(decode(store.get(key)) if store is not None else None, questions_in)
    if rendered is None and (shipped := shipped_records()) is not None:
        rendered = made_of(shipped.record(key), questions_in)  # rendered by the same version: the key names it
    if rendered is None:
        _refuse_to_fetch(task, local_rows)
        leave_to_measuring()  # imports libraries, and changes some of their functions meanwhile
        text = json.dumps(_render(task, info, local_rows))
        record = Record({"json": np.frombuffer(text.encode(), np.uint8)}, {"kind": "requests", "task": task.fields()})
        if store is not None:
            store.put(key, encode(record))
        rendered = questions_in(record)
    questions, greedy, labels_kept = rendered
    chance = info.chance
    if not info.chance and not greedy:
        chance = float(np.mean([len(question.golds) / len(question.contexts) for question in questions]))
    own = local_rows.own_file(task.split, info) if local_rows is not None and task.name.endswith(OWN_SUFFIXES) else None
    for line in own.remarks if own is not None else ():
        remark.get()(line)
    return RenderedQuestions(task, questions, greedy, source, chance, labels_kept, own)


def harness_rows(
    task: TaskSpec, data_dir: str | Path | None = None, first: int | None = 0
) -> tuple[Any, dict[int, Any]]:
    """(the harness's own task, its rows by `doc_id`) behind `render_questions`; the same errors."""
    info = task_info(task.name)
    given = _given(task, info, data_dir, first)
    _refuse_to_fetch(task, given)
    harness_task, _ = _labeled(task, info, given)
    return harness_task, dict(harness_task.doc_iterator(rank=0, limit=None, world_size=1))


def _given(task: TaskSpec, info: TaskInfo, data_dir: str | Path | None, first: int | None) -> rows.Given | None:
    """The files of a task on this computer; None if its rows are on the hub."""
    files = local_files(info, data_dir)
    if files is None:
        return None
    given = rows.read(info, files)
    return replace(given, first={task.split: first}) if given.is_large else given


def _refuse_to_fetch(task: TaskSpec, given: rows.Given | None) -> None:
    if given is None and not may_fetch():
        where = "give a folder with them, --download, or switch on “Fetch tasks” (Settings of Prune)"
        raise NotHere("", f"the rows of task {task.name} are not on this computer: {where}")


SizedChunk = tuple[tuple[int, ...], int]


@dataclass(frozen=True)
class Questions:
    """Which questions of a task, in which order: the first `n` of `order`, indices into `rendered.questions`.

    Chunks are fixed runs of `order`, so a question is always scored in the same company, whatever the limit.
    """

    rendered: RenderedQuestions
    order: tuple[int, ...]
    n: int

    @property
    def task(self) -> TaskSpec:
        return self.rendered.task

    def __str__(self) -> str:
        """Changes with the questions that are wanted."""
        return f"{self.task} {self.digest(self.order[: self.n])}"

    def chunks(self) -> list[tuple[int, ...]]:
        """Runs of CHUNK indices that cover the selection; the last may reach beyond it."""
        return [self.order[start : start + CHUNK] for start in range(0, self.n, CHUNK)]

    def sized_chunks(self, size: int = CHUNK) -> list[SizedChunk]:
        """The chunks, or others of `size`, each with how many of its questions are wanted."""
        return [(self.order[at : at + size], min(size, self.n - at)) for at in range(0, self.n, size)]

    def at(self, chunk: Sequence[int]) -> list[Question]:
        """The questions of a chunk."""
        return [self.rendered.questions[index] for index in chunk]

    def asked(self) -> "Questions":
        """The same without the questions of the task that are in none of the chunks."""
        rows = [index for chunk in self.chunks() for index in chunk]
        return Questions(replace(self.rendered, questions=tuple(self.at(rows))), tuple(range(len(rows))), self.n)

    def digest(self, chunk: Sequence[int]) -> str:
        """Digest of a chunk by its questions' rendered text, in order."""
        texts = "".join(question.digest for question in self.at(chunk))
        return hashlib.blake2b(texts.encode(), digest_size=16).hexdigest()

    def receipt(self) -> dict[str, Any]:
        """What a receipt says of them."""
        return {"task": self.task.fields(), "source": self.rendered.source}


SAMPLES = ("first", "stratified")


def select(rendered: RenderedQuestions, limit: int | None = None, sample: str = "first") -> Questions:
    """The questions to use: `first` in dataset order (what the harness's limit does), or `stratified`.

    Stratified is one seeded order in which every beginning has nearly the same share of each gold choice, so that an
    accuracy over the first few questions is a fair preview of the whole.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}; it must be at least 1")
    n = len(rendered.questions)
    wanted = min(n, limit or n)
    if sample == "first":
        return Questions(rendered, tuple(range(n)), wanted)
    if sample != "stratified":
        raise UsageError(f"sample {sample!r} is unknown; choose first or stratified")
    return Questions(rendered, _stratified(rendered), wanted)


def _stratified(rendered: RenderedQuestions) -> tuple[int, ...]:
    shuffled = [int(index) for index in np.random.default_rng(0).permutation(len(rendered.questions))]
    by_gold: dict[tuple[int, ...], list[int]] = {}
    for index in shuffled:
        by_gold.setdefault(rendered.questions[index].golds, []).append(index)
    place = {index: (rank + 0.5) / len(group) for group in by_gold.values() for rank, index in enumerate(group)}
    return tuple(sorted(shuffled, key=place.__getitem__))


def questions_in(record: Record) -> Rendered:
    """(questions, greedy, labels_kept) of a stored record."""
    content = record.arrays["json"].tobytes()
    digest = hashlib.blake2b(content).digest()
    return PARSED_QUESTIONS.get(digest, lambda: _parsed(content), lambda _: len(content))


def _parsed(content: bytes) -> Rendered:
    found = json.loads(content)
    if type(found["greedy"]) is not bool or type(kept := found.get("kept", 0.0)) is not float:
        raise ValueError("greedy is not true or false, or kept is not a number")
    return tuple(_question(entry) for entry in found["questions"]), found["greedy"], kept


def _question(entry: dict[str, Any]) -> Question:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    once: dict[str, str] = {}  # the choices' contexts are equal in most tasks, and most of the text
    fields["contexts"] = tuple(once.setdefault(context, context) for context in fields["contexts"])
    question = Question(**fields)
    n, texts = len(question.contexts), (*question.contexts, *question.continuations, question.digest)
    numbers = (question.doc_id, *question.golds, *question.n_chars)
    if not (n and n == len(question.continuations) == len(question.n_chars) and question.golds
            and all(type(text) is str for text in texts) and all(type(number) is int for number in numbers)
            and all(0 <= gold < n for gold in question.golds)):  # fmt: skip
        raise ValueError("not a question")
    return question


def _render(task: TaskSpec, info: TaskInfo, given: rows.Given | None) -> dict[str, Any]:
    """The content of a record."""
    lm_eval_internals.compile_templates_once()
    harness_task, shuffled = _labeled(task, info, given)
    numbers = [number for number, _ in given.lines[task.split]] if given is not None else []
    questions = [asdict(question) for question in _questions(task, harness_task, numbers)]
    more = {"kept": shuffled.n_kept / shuffled.n} if shuffled else {}
    return {"greedy": harness_task.OUTPUT_TYPE == "loglikelihood", "questions": questions, **more}


def _labeled(task: TaskSpec, info: TaskInfo, given: rows.Given | None) -> tuple[Any, ShuffledAnswers | None]:
    """The harness's task with the labels that are wanted, and the answers that it shuffles."""
    harness_task = harness_task_of(task, info, given)
    if task.labels == "shuffled" and task.shots:
        return harness_task, shuffle_answers(harness_task, task.name, task.shots, task.seed)
    if task.labels == "unrelated":
        use_words(harness_task, task.name)
    return harness_task, None


def _questions(task: TaskSpec, harness_task: Any, numbers: Sequence[int]) -> list[Question]:
    """The questions; `numbers` are their rows in the file, where they come from one."""
    found, chats = [], Chats()
    kwargs = {"apply_chat_template": True, "chat_template": chats.add} if task.chat else {}
    documents = harness_task.doc_iterator(rank=0, limit=None, world_size=1)
    for doc_id, doc in documents:
        may_stop()  # a large train split takes longer than a user should wait for an accuracy
        if doc_id % REPORTED == REPORTED - 1:
            tell.get()(doc_id + 1, max(doc_id + 1, len(numbers)), f"rendering questions of {task.name}", None)
        try:
            if task.same_examples:
                harness_task.set_fewshot_seed(task.seed)
            # few-shot draws consume one generator, so documents are rendered in order and never singly
            context = harness_task.fewshot_context(
                doc,
                num_fewshot=task.shots,
                gen_prefix=harness_task.doc_to_prefix(doc),
                fewshot_as_multiturn=True,
                **kwargs,
            )
            instances = harness_task.construct_requests(doc=doc, ctx=context, metadata=(task.name, doc_id, 1), **kwargs)
            instances = instances if isinstance(instances, list) else [instances]
            golds, n_chars = golds_and_lengths(harness_task, doc, instances)
        except (KeyError, ValueError, IndexError, TypeError, AssertionError) as error:
            if task.shots and lm_eval_internals.has_too_few_rows(error):
                n_rows = len(list(harness_task.fewshot_docs()))
                raise TooFewRows(task, n_rows) from error
            row = numbers[doc_id] if doc_id < len(numbers) else doc_id + 1
            raise HeadroomError(
                f"task {task.name}, {task.split} row {row}: cannot be rendered "
                f"({type(error).__name__}: {error}); check the row's columns"
            ) from error
        contexts, continuations = zip(*(instance.args[:2] for instance in instances), strict=True)
        found.append((doc_id, contexts, continuations, golds, n_chars))
    if task.chat is not None:
        texts = task.chat.render(chats.conversations)  # in one process for all
        found = [(doc_id, tuple(texts[int(at)] for at in places), *rest) for doc_id, places, *rest in found]
    return [Question(*each, digest=_digest(*each[1:3])) for each in found]


def _digest(contexts: Sequence[str], continuations: Sequence[str]) -> str:
    return hashlib.blake2b(json.dumps([contexts, continuations]).encode(), digest_size=16).hexdigest()
