"""Answers that lm-evaluation-harness 0.4 logged with `--log_samples`, next to those measured here."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers
from engine.accuracy.harness_rows import HOW, AskedChoice, ScoredChoice, logged_rows
from engine.errors import HeadroomError
from engine.files import named, read_regular
from engine.questions.lm_eval_internals import as_logged
from engine.questions.rendering import Question

NAMED = re.compile(r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+))?")  # 0.4.3 and later
EARLIER = "pretrained__"  # in names of 0.4.0 to 0.4.2, which begin with the arguments of the model
ENDINGS = (".jsonl", ".json")
MOST_BYTES, MOST_FILES = 500_000_000, 200
ByTexts = dict[tuple[AskedChoice, ...], dict[int, tuple[ScoredChoice, ...]]]  # by the texts of a question, and `doc_id`
PREFIX, SUFFIX = "samples_", ".jsonl"


@dataclass(frozen=True)
class HarnessAnswers:
    """The harness's answers to questions that were also asked here.

    file: the samples that they were read from
    rows: which of the questions asked here they answer, in order
    answers: the answers to these
    n_other: questions asked here that the file lacks, or has with another prompt
    """

    file: Path
    rows: tuple[int, ...]
    answers: Answers
    n_other: int

    def is_same(self, ours: Answers) -> np.ndarray:
        """Returns (rows,): whether the answers measured here are the same."""
        at = list(self.rows)
        if ours.by_greedy:
            return ours.correct[at] == self.answers.correct
        return ours.predicted[at] == self.answers.predicted

    def largest_difference_nats(self, ours: Answers) -> float:
        """Returns the largest difference of two log-likelihoods."""
        theirs = self.answers.log_likelihood_nats
        return float(np.nanmax(np.abs(ours.log_likelihood_nats[list(self.rows), : theirs.shape[1]] - theirs)))


def harness_answers(where: str, task: str, asked: Answers) -> HarnessAnswers:
    """Returns the harness's answers to the questions of `asked`, from a file of samples or the newest in a folder that
    has some of them. Questions are matched by their prompt and choices, those asked twice also by `doc_id`.
    HeadroomError: there is no such file, it cannot be read, or it has none of the questions."""
    files, unread = _files(named(where, "samples"), Path(task).stem), list[HeadroomError]()
    for file in files:
        try:
            changed = file.stat()
            found = _matched(file, _read(file, changed.st_mtime_ns, changed.st_size), asked)
        except OSError as error:
            unread.append(HeadroomError(f"cannot read {file} ({error.strerror}); {HOW}"))
        except HeadroomError as error:
            unread.append(error)
        else:
            if found is not None:
                return found
    if unread:
        raise unread[0]
    raise HeadroomError(f"{files[0]} has none of these questions with the same prompt; choose its task and shots")


def _files(path: Path, task: str) -> list[Path]:
    """Returns the files of a folder and of the folders in it, one for each model: those of the task, or else all, the
    newest first by the date in their names."""
    if path.is_file():
        return [path]
    found = [each for each in (*path.glob("*"), *path.glob("*/*")) if each.suffix in ENDINGS] if path.is_dir() else []
    dated, of_task = dict[Path, str](), list[Path]()
    for file in found:
        parts = NAMED.fullmatch(file.stem)
        is_of_task = parts["task"] == task if parts else file.stem.endswith(f"_{task}")
        if parts or is_of_task or EARLIER in file.stem:
            dated[file] = (parts and parts["date"]) or ""
            of_task += [file] if is_of_task else []
    if not dated:
        what = "has no samples" if path.is_dir() else "is not a folder or file"
        raise HeadroomError(f"{path} {what}; {HOW}")
    return sorted(of_task or dated, key=lambda file: (dated[file], file))[: -MOST_FILES - 1 : -1]


@lru_cache(maxsize=2)
def _read(file: Path, changed_ns: int, size: int) -> ByTexts:
    """Returns the answers in a file."""
    found: ByTexts = {}
    for row in logged_rows(file, read_regular(file, MOST_BYTES)):
        found.setdefault(row.requests, {}).setdefault(row.doc_id, row.scores)  # of several filters the first
    return found


def _matched(file: Path, by_texts: ByTexts, asked: Answers) -> HarnessAnswers | None:
    """Returns None if no question is in the file."""
    rows, scores = list[int](), list[tuple[ScoredChoice, ...]]()
    for row, question in enumerate(asked.questions):
        if by_id := by_texts.get(_texts(question)):
            rows.append(row)
            scores.append(by_id.get(question.doc_id) or next(iter(by_id.values())))
    if not rows:
        return None
    width = max(map(len, scores))
    nats, greedy = np.full((len(rows), width), np.nan), np.zeros((len(rows), width), bool)
    for at, each in enumerate(scores):
        nats[at, : len(each)], greedy[at, : len(each)] = zip(*each, strict=True)
    questions = tuple(asked.questions[row] for row in rows)
    answers = Answers(questions, nats, greedy, np.zeros(len(rows), int), asked.by_greedy)
    return HarnessAnswers(file, tuple(rows), answers, len(asked) - len(rows))


def _texts(question: Question) -> tuple[AskedChoice, ...]:
    return tuple(map(AskedChoice, question.contexts, question.continuations))


def is_samples(path: str) -> bool:
    """Whether a file's name is that of samples."""
    name = Path(path).name
    return name.startswith(PREFIX) and name.endswith(SUFFIX)


def to_samples(answers: Answers, harness_task: Any, docs: Mapping[int, Any]) -> bytes:
    """Returns the answers as the harness writes them, by `doc_id`. The task of the harness says what is right, and
    which metrics an answer has; `docs` are its rows by `doc_id`."""
    lines = []
    for row in sorted(range(len(answers)), key=lambda row: answers.questions[row].doc_id):
        question = answers.questions[row]
        if question.doc_id not in docs:
            raise HeadroomError(
                f"the task has no row {question.doc_id} any more; measure it again with its present rows"
            )
        doc, n = docs[question.doc_id], len(question.contexts)
        scores = list(zip(answers.log_likelihood_nats[row, :n].tolist(), answers.greedy[row, :n].tolist(), strict=True))
        target, metrics = str(harness_task.doc_to_target(doc)), harness_task.process_results(doc, scores)
        resps = [[str(nats), str(is_greedy)] for nats, is_greedy in scores]
        lines.append({
            "doc_id": question.doc_id, "doc": doc, "target": target,
            "arguments": {f"gen_args_{at}": {"arg_0": context, "arg_1": continuation} for at, (context, continuation)
                          in enumerate(zip(question.contexts, question.continuations, strict=True))},
            "resps": [[each] for each in resps], "filtered_resps": resps, "filter": "none", "metrics": [*metrics],
            "doc_hash": _digest(_json(doc, indent=2)), "prompt_hash": _digest(question.contexts[0]),
            "target_hash": _digest(target), **metrics,
        })  # fmt: skip
    return "".join(_json(line) + "\n" for line in lines).encode()


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, default=as_logged, ensure_ascii=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
