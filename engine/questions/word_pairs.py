"""Tasks of word pairs, such as a country and its capital, and their prompts: solved examples with true or shuffled
answers, then one question.

They are columns of a CSV file, two by two: a question and its answer. The column titles name the task, rows alternate
between train and test, and blank pairs are left out. The included ones are the file next to this module.
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
from engine.questions import rows
from engine.questions.encoding import encode_questions
from engine.questions.labels import derangement
from engine.questions.requests import Question
from engine.questions.tasks import SPLITS, embedded_tasks, local_files

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
    """

    name: str
    pairs: tuple[Pair, ...]
    form: str = "Q: {}\nA:"
    has_own_answers: bool = True
    n_dropped: int = 0

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
        encoded = encode_questions([self.asked(pair) for pair in self.pairs], tokenizer, False, 1024)
        tokens = [choices[0].targets[0] for choices in encoded]
        known = [pair._replace(token=token) for pair, token in zip(self.pairs, tokens, strict=True)]
        pairs = [*{pair.token: pair for pair in reversed(known)}.values()][::-1] if self.has_own_answers else known
        return replace(self, pairs=tuple(pairs), n_dropped=len(known) - len(pairs))

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
    """Returns the tasks in a CSV file. HeadroomError: the file cannot be read, or it names the row that is wrong."""
    path = named(str(file), "file of word pairs")
    try:
        lines = rows.csv_cells(path, read_regular(path, MOST_BYTES))
    except OSError as error:
        raise rows.not_csv(path, error) from error
    titles = lines[0] if lines else []
    if not titles or len(titles) % 2:
        raise HeadroomError(f"{path}: {len(titles)} columns; write two per task, questions and answers, with titles")
    found: list[list[Pair]] = [[] for _ in titles[::2]]
    for number, cells in enumerate(lines[1:], 2):
        if len(cells) not in (0, len(titles)):
            raise HeadroomError(
                f"{path}, row {number}: {len(cells)} cells, expected {len(titles)}; quote text with commas"
            )
        for at, pair in enumerate(zip(cells[::2], cells[1::2], strict=False)):
            question, answer = (text.strip() for text in pair)
            if bool(question) != bool(answer):
                lacking = titles[2 * at + bool(question)]
                raise HeadroomError(f"{path}, row {number}: {question or answer!r} has no {lacking}; fill in both")
            if question:
                found[at].append(Pair(question, answer, len(found[at]) % 2 == 0))
    return tuple(PairTask(f"{titles[2 * at]}-{titles[2 * at + 1]}", tuple(pairs)) for at, pairs in enumerate(found))


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
