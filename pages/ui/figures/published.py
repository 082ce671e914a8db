"""Published accuracies of the full model, next to those measured here; no streamlit here."""

from collections.abc import Sequence

from engine.accuracy.published import Published, published_value
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from pages.ui.page.tables import number, percent

NOTE = "Published values: lm-evaluation-harness 0.3, all questions of the task"


def in_words(target: Target, task: TaskSpec) -> str:
    """Describes the published accuracy of the model on a task and the differing conditions; "" if not comparable."""
    found = published_value(target.spec, task, target.bos)
    if found is None:
        return ""
    words = f"Full model as published: **{percent(found.value)}**"
    ppl = published_value(target.spec, task, target.bos, "perplexity")
    words += "" if ppl is None else f", perplexity {number(ppl.value, 2)}"
    otherwise = _describe_differences([found], target)
    return f"{words} ({otherwise})" if otherwise else words


def of_tasks(target: Target, tasks: Sequence[TaskSpec]) -> tuple[dict[TaskSpec, float], str]:
    """Returns (the published accuracies, 0-1, by task, a sentence about them); ({}, "") if there are none."""
    known = {task: published_value(target.spec, task, target.bos) for task in tasks}
    there = {task: row for task, row in known.items() if row is not None}
    note = ", ".join(filter(None, [NOTE, _describe_differences(list(there.values()), target)])) + "." if there else ""
    return {task: row.value for task, row in there.items()}, note


def _describe_differences(rows: Sequence[Published], target: Target) -> str:
    """Returns the conditions that differed, such as "without BOS", or ""."""
    words = []
    if any(row.bos != target.bos for row in rows):
        words.append("with BOS" if rows[0].bos else "without BOS")
    if any(row.has_other_examples for row in rows):
        words.append("other examples")
    return ", ".join(words)
