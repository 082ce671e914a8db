"""Writes engine/questions/lengths.csv from the rows of the real tasks and of the embedded ones, encoded by OPT's own
tokenizer: `.venv/bin/python -m tests.write_lengths`. Needs `../shared` beside the clone.
"""

from typing import Any

from engine.questions.amounts import LOOKED_AT, characters
from engine.questions.encoding import encode_questions
from engine.questions.lengths import SHOTS, TABLE, Lengths, measured_lengths, write_table
from engine.questions.requests import TaskSpec, get_requests, select
from engine.questions.tasks import HARNESS_TASKS, embedded_tasks
from tests.benchmarks.measure import SHARED, task_data

WINDOW = 2048  # OPT's


def opt_tokenizer() -> Any:
    """OPT's own, from the shared folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(SHARED / "opt-tokenizer")


def lengths_here(task: TaskSpec, tokenizer: Any) -> Lengths:
    """The lengths of a task's questions, measured."""
    questions = select(get_requests(task, task_data()), LOOKED_AT, "stratified")
    some = questions.at(questions.order[: questions.n])
    encoded = encode_questions(some, tokenizer, True, WINDOW)
    read = sum(characters(questions.at(chunk)) for chunk in questions.chunks())
    return measured_lengths(encoded, [question.golds[0] for question in some], read)


if __name__ == "__main__":
    opt, found = opt_tokenizer(), {}
    for name in (*HARNESS_TASKS, *embedded_tasks()):
        for shots in SHOTS:
            found[name, shots] = lengths_here(TaskSpec(name, shots), opt)
            print(name, shots, found[name, shots], flush=True)
    write_table(found)
    print(f"Written: {TABLE}")
