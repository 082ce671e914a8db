"""Tasks of word pairs, such as a country and its capital, and their prompts: solved examples with true or shuffled
answers, then one question.

They are columns of a CSV file, two by two (`engine.questions.pair_files`). The column titles name the task, and rows
alternate between train and test. The included ones are the file next to this module.
"""

import filecmp
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache as once
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.demo import model_folder
from engine.errors import HeadroomError
from engine.files import named, read_regular
from engine.progress import remark
from engine.questions import rows
from engine.questions.encoding import encode_questions
from engine.questions.faults import BadChoices
from engine.questions.labels import derangement
from engine.questions.pair_files import PairColumns, read_pair_file
from engine.questions.rendering import Question
from engine.questions.tasks import PAIR_COLUMNS, SPLITS, embedded_tasks, local_files
from engine.questions.white_space import white_space_note

N_SHOTS = 10
MOST_BYTES = 10_000_000  # of a file


class Pair(NamedTuple):
    """A question and its answer, for examples in a prompt or else to be asked; `token`: the first token of the answer
    (-1: not known yet)."""

    question: str
    answer: str
    is_train: bool
    token: int = -1


@dataclass(frozen=True)
class PairTask:
    """A task of word pairs.

    name: of the task
    pairs: in the order in which they are read
    form: how a question is written, before a space and the answer
    has_own_answers: whether each answer begins with a token of its own
    n_dropped: pairs dropped because an earlier one has the same first token of the answer
    file, rows: the file that the pairs are from, and the row of each; "" and none if unknown
    """

    name: str
    pairs: tuple[Pair, ...]
    form: str = "Q: {}\nA:"
    has_own_answers: bool = True
    n_dropped: int = 0
    file: str = ""
    rows: tuple[int, ...] = ()

    @property
    def train(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.is_train]

    @property
    def test(self) -> list[Pair]:
        return [pair for pair in self.pairs if not pair.is_train]

    @cached_property
    def digest(self) -> str:
        """Identifies the pairs and how prompts are written."""
        about = json.dumps([self.pairs, self.form, self.has_own_answers, N_SHOTS])
        return hashlib.blake2b(about.encode(), digest_size=16).hexdigest()

    @property
    def is_usable(self) -> bool:
        """Whether there are enough pairs for a prompt."""
        return len(self.train) > N_SHOTS and bool(self.test)

    def asked(self, pair: Pair, shots: Iterable[tuple[str, str]] = ()) -> Question:
        """Returns the question of a pair, after solved examples."""
        text = "".join(f"{self.form.format(question)} {answer}\n\n" for question, answer in shots)
        return Question(0, (text + self.form.format(pair.question),), (f" {pair.answer}",), (0,), (0,), "")

    def tokenized(self, tokenizer: Any) -> "PairTask":
        """Returns the task with the first tokens of answers, without pairs that share theirs with an earlier one."""
        asked = [replace(self.asked(pair), doc_id=number) for number, pair in enumerate(self.pairs)]
        try:
            encoded = encode_questions(asked, tokenizer, False, 1024)
        except BadChoices as error:
            if self.rows:
                raise error.in_file(self.file, self.rows) from None
            raise
        tokens = [choices[0].targets[0] for choices in encoded]
        known = [pair._replace(token=token) for pair, token in zip(self.pairs, tokens, strict=True)]
        pairs = [*{pair.token: pair for pair in reversed(known)}.values()][::-1] if self.has_own_answers else known
        return replace(self, pairs=tuple(pairs), n_dropped=len(known) - len(pairs), file="", rows=())

    def prompt(self, split: str, number: int, shuffled: bool = False) -> Question:
        """Returns a prompt with N_SHOTS train pairs before a pair of the split; `shuffled`: each example has the
        answer of another, which begins with another token. For a usable task with first tokens."""
        generator = np.random.default_rng((number, split == "train"))
        train, tokens = self.train, list[int]()
        while 2 * max(map(tokens.count, tokens), default=N_SHOTS) > N_SHOTS:  # else an answer would have to stay
            *shots, last = (train[at] for at in generator.permutation(len(train))[: N_SHOTS + 1])
            tokens = [pair.token for pair in shots]
        pair = last if split == "train" else self.test[generator.integers(len(self.test))]
        others = derangement(tokens, generator) if shuffled else range(N_SHOTS)
        examples = [(shot.question, shots[other].answer) for shot, other in zip(shots, others, strict=True)]
        return self.asked(pair, examples)


def read_pairs(file: str | Path) -> tuple[PairTask, ...]:
    """Returns the tasks in a CSV file. HeadroomError: the file cannot be read, or it names the rows that are wrong."""
    path = named(str(file), "file of word pairs")
    try:
        found = read_pair_file(path, read_regular(path, MOST_BYTES))
    except OSError as error:
        raise HeadroomError(f"{path} cannot be read ({error.strerror}); give a CSV file of word pairs") from error
    texts = ((row, dict(zip(PAIR_COLUMNS, pair, strict=True))) for task in found.tasks for row, *pair in task.pairs)
    for line in (found.note, white_space_note(path.name, texts)):
        if line:
            remark.get()(line)
    return tuple(_task(path, columns) for columns in found.tasks)


def _task(file: Path, columns: PairColumns) -> PairTask:
    pairs = tuple(Pair(question, answer, n % 2 == 0) for n, (_, question, answer) in enumerate(columns.pairs))
    return PairTask("-".join(columns.titles), pairs, file=str(file), rows=tuple(row for row, *_ in columns.pairs))


def included_tasks(folder: Path) -> tuple[PairTask, ...]:
    """Returns the included tasks for a model in a folder: word pairs or, with the tokenizer of the included model, the
    included tasks that examples explain, since it knows only their words."""
    own, demo = folder / "tokenizer.json", model_folder() / "tokenizer.json"
    return _demo_tasks() if own.is_file() and filecmp.cmp(own, demo, shallow=False) else _included()


@once
def _included() -> tuple[PairTask, ...]:
    return read_pairs(Path(__file__).with_suffix(".csv"))


@once
def _demo_tasks() -> tuple[PairTask, ...]:
    found = []
    for info in embedded_tasks().values():
        if info.needs == "examples":
            given = rows.read(info, local_files(info, None) or {})
            pairs = (Pair(row["context"], row["choices"][row["gold"]], split == "train")
                     for split in SPLITS for row in given.rows(split, info))  # fmt: skip
            found.append(PairTask(info.name, tuple(pairs), "{}", has_own_answers=False))
    return tuple(found)
