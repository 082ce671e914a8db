"""Answers measured here, written as lm-evaluation-harness logs its own with `--log_samples`."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.accuracy.evaluation import Answers
from engine.errors import HeadroomError
from engine.questions.lm_eval_internals import as_logged

PREFIX, SUFFIX = "samples_", ".jsonl"


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
