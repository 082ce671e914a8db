"""Fields of requests that several have without a class in common, and the bounds of numbers."""

from typing import Any

from engine.questions.labels import LABELS
from engine.questions.rendering import MAX_SHOTS
from engine.requests.fields import choice, number

MOST, MOST_SEED, MOST_THREADS = 1_000_000, 2**31 - 1, 1024
SAME_EXAMPLES = "use the same examples for every question (faster, but results differ from lm-evaluation-harness)"
AS_CHAT = "write each prompt as a chat, with the chat template of the model (default: as typed)"


def training_questions(default: int | None = 64) -> Any:
    """A field for the number of training questions (None: all)."""
    help = f"number of training questions used to rank heads and FFNs (default: {default or 'all'})"
    return number(default, (1, MOST), help)


def examples_in_prompt(default: int = 0) -> Any:
    """A field for the number of examples in front of a question."""
    return number(default, (0, MAX_SHOTS), f"number of examples in the prompt (default: {default})")


def labels_of_examples() -> Any:
    """A field for what the solved examples of a task are labeled with."""
    return choice(
        "true",
        LABELS,
        "labels of the examples: true answers (default), answers shuffled among the examples of a prompt, or unrelated "
        "words, one for each choice, also in the question (only if all questions have the same choices)",
    )
