"""Answers that lm-evaluation-harness 0.4 wrote with `--log_samples`, next to those measured here; and answers measured
here, written in that form."""

import hashlib
import json
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from cache.files import InvalidFile
from cache.typed_json import Count, decode_json
from engine.accuracy.evaluation import Answers
from engine.errors import HeadroomError
from engine.files import named, read_regular
from engine.questions.requests import Question

PREFIX, SUFFIX = "samples_", ".jsonl"
DATED = re.compile(r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+))?\.jsonl")
MOST_BYTES, MOST_FILES = 500_000_000, 200
HOW = "give a file samples_TASK_DATE.jsonl of lm-eval --log_samples, or its folder"
Texts = tuple[tuple[str, str], ...]  # of one question: context and continuation of each choice


class _Row(TypedDict):
    doc_id: Count
    arguments: dict[str, dict[str, Any]]
    filtered_resps: list[Any]


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
    files = _files(named(where, "samples"), Path(task).stem)
    for file in files:
        changed = file.stat()
        by_texts = _read(file, changed.st_mtime_ns, changed.st_size)
        if found := _matched(file, by_texts, asked):
            return found
    raise HeadroomError(f"{files[0]} has none of these questions with the same prompt; choose its task and shots")


def to_samples(answers: Answers) -> bytes:
    """Returns the answers as the harness writes them. A question's `doc` has its context, choices, and right choices,
    as the row that it was rendered from is not stored."""
    lines = []
    for row in np.argsort([question.doc_id for question in answers.questions], kind="stable").tolist():
        question = answers.questions[row]
        scores, greedy = (each[row, : len(question.contexts)].tolist()
                          for each in (answers.log_likelihood_nats, answers.greedy))  # fmt: skip
        resps = [[str(score), str(bool(is_greedy))] for score, is_greedy in zip(scores, greedy, strict=True)]
        doc = {"context": question.contexts[question.golds[0]], "choices": question.continuations,
               "gold": question.golds}  # fmt: skip
        target = question.continuations[0] if answers.by_greedy else question.golds[0]
        metrics = {"acc": float(answers.correct[row])}
        metrics |= {} if answers.by_greedy else {"acc_norm": float(answers.correct_norm[row])}
        lines.append({
            "doc_id": question.doc_id, "doc": doc, "target": str(target),
            "arguments": {f"gen_args_{at}": {"arg_0": context, "arg_1": continuation}
                          for at, (context, continuation) in enumerate(_texts(question))},
            "resps": [[each] for each in resps], "filtered_resps": resps, "filter": "none", "metrics": [*metrics],
            "doc_hash": _digest(json.dumps(doc, indent=2, ensure_ascii=False)),
            "prompt_hash": _digest(question.contexts[0]), "target_hash": _digest(str(target)), **metrics,
        })  # fmt: skip
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def is_samples(path: str) -> bool:
    """Whether a file's name is that of samples."""
    name = Path(path).name
    return name.startswith(PREFIX) and name.endswith(SUFFIX)


def _files(path: Path, task: str) -> list[Path]:
    """Returns the files of a folder and of the folders in it, one for each model: those of the task, or else all, the
    newest first."""
    if path.is_file():
        return [path]
    files = [*path.glob(f"{PREFIX}*{SUFFIX}"), *path.glob(f"*/{PREFIX}*{SUFFIX}")] if path.is_dir() else []
    if not files:
        what = "has no samples" if path.is_dir() else "is not a folder or file"
        raise HeadroomError(f"{path} {what}; {HOW}")
    parts = {file: DATED.fullmatch(file.name) for file in files}
    of_task = [file for file in files if (found := parts[file]) and found["task"] == task] or files
    return sorted(of_task, key=lambda file: ((parts[file] or {"date": ""})["date"] or "", file))[: -MOST_FILES - 1 : -1]


@lru_cache(maxsize=2)
def _read(file: Path, changed_ns: int, size: int) -> dict[Texts, dict[int, list[tuple[float, bool]]]]:
    """Returns the log-likelihood of each choice and whether it is greedy, by the question's texts and `doc_id`."""
    try:
        lines = read_regular(file, MOST_BYTES).split(b"\n")
    except OSError as error:
        raise HeadroomError(f"cannot read {file} ({error.strerror}); {HOW}") from error
    found: dict[Texts, dict[int, list[tuple[float, bool]]]] = {}
    for at, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{file}, line {at}"
        try:
            row = decode_json(line, _Row, where)
            texts = tuple((_text(each["arg_0"]), _text(each["arg_1"])) for each in row["arguments"].values())
            scores = [(float(nats), str(greedy) == "True") for nats, greedy in row["filtered_resps"]]
        except InvalidFile as error:
            raise HeadroomError(f"{error}; {HOW}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise HeadroomError(f"{where}: its answers are not log-likelihoods of choices; {HOW}") from error
        if len(scores) != len(texts) or not scores or any(math.isnan(nats) for nats, _ in scores):
            raise HeadroomError(f"{where}: expected one log-likelihood for each choice; {HOW}")
        found.setdefault(texts, {}).setdefault(row["doc_id"], scores)  # the first filter of several
    return found


def _matched(file: Path, by_texts: dict[Texts, dict[int, list[tuple[float, bool]]]], asked: Answers) -> Any:
    """Returns the HarnessAnswers, or None if no question is in the file."""
    rows, scores = list[int](), list[list[tuple[float, bool]]]()
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


def _texts(question: Question) -> Texts:
    return tuple(zip(question.contexts, question.continuations, strict=True))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("text expected")
    return value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
