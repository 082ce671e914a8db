"""Measures how long the questions of tasks are and writes engine/questions/lengths.csv:

    HEADROOM_TASK_DATA=DIR .venv/bin/python -m tests.write_lengths [TASK ...]

Measures the named tasks and keeps the other rows; without names, measures all tasks. DIR holds `<task>/train.jsonl` and
`<task>/validation.jsonl`. OPT's own tokenizer must be on this computer: that of facebook/opt-125m in the Hub cache.
"""

import sys
from collections.abc import Sequence
from typing import Any

from engine.checkpoints import hub
from engine.checkpoints.names import model_name
from engine.questions.encoding import encode_questions
from engine.questions.lengths import SHOTS, TABLE, Lengths, known_tasks, lengths_of, measured_lengths, write_table
from engine.questions.requests import TaskSpec, get_requests, select
from engine.questions.tasks import HARNESS_TASKS, embedded_tasks, task_info
from engine.timing.workload import LOOKED_AT, characters
from tests.benchmarks.measure import SHARED, task_data

WINDOW = 2048  # OPT's


def opt_tokenizer() -> Any:
    """OPT's own, from the shared folder or the Hub cache; NotHere if neither has it."""
    from transformers import AutoTokenizer

    folder = SHARED / "opt-tokenizer"
    return AutoTokenizer.from_pretrained(folder if folder.is_dir() else hub.found(model_name("facebook/opt-125m")))


def lengths_here(task: TaskSpec, tokenizer: Any) -> Lengths:
    """The lengths of a task's questions, measured."""
    questions = select(get_requests(task, task_data()), LOOKED_AT, "stratified")
    some = questions.at(questions.order[: questions.n])
    encoded = encode_questions(some, tokenizer, True, WINDOW)
    read = sum(characters(questions.at(chunk)) for chunk in questions.chunks())
    return measured_lengths(encoded, [question.golds[0] for question in some], read)


def main(names: Sequence[str]) -> None:
    """Measures the named tasks, or all, and writes the table; UsageError for a name that is not a task."""
    every, opt, found = [*HARNESS_TASKS, *embedded_tasks()], opt_tokenizer(), {}
    wanted = [task_info(name).name for name in names] or every
    for name in every:
        for shots in SHOTS:
            task = TaskSpec(name, shots)
            if name in wanted:
                found[name, shots] = lengths_here(task, opt)
                print(name, shots, found[name, shots], flush=True)
            elif name in known_tasks():
                found[name, shots] = lengths_of(task)
    write_table(found)
    print(f"Written: {TABLE}")


if __name__ == "__main__":
    main(sys.argv[1:])
