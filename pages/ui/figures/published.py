"""Published accuracies of the full model, next to those measured here; no streamlit here."""

from collections.abc import Sequence

from engine.accuracy.published import Published, published_value
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from pages.ui.page.tables import number, percent


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


def _describe_differences(rows: Sequence[Published], target: Target) -> str:
    """Returns the conditions that differed, such as "without BOS", or ""."""
    words = []
    if any(row.bos != target.bos for row in rows):
        words.append("with BOS" if rows[0].bos else "without BOS")
    if any(row.has_other_examples for row in rows):
        words.append("other examples")
    return ", ".join(words)
