"""Labels of the solved examples in a prompt: their true answers, their answers shuffled, or unrelated words."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from engine.errors import HeadroomError
from engine.questions.lm_eval_internals import rewrite_answers

LABELS = ("true", "shuffled", "unrelated")
WORDS = ("moon", "music", "iron", "cloud", "ship", "bird", "king", "farm", "star", "memory")  # one token each for most


class ShuffledAnswers:
    """The answers of the examples in a prompt, each at another example. `n_kept` of `n` are at their own, as too few
    differ from one another."""

    def __init__(self, seed: int) -> None:
        self.seed, self.n, self.n_kept = seed, 0, 0

    def __call__(self, answers: Sequence[str]) -> list[str]:
        generator = np.random.default_rng([self.seed, *"\n".join(answers).encode()])  # equal examples, equal answers
        found = [answers[other] for other in derangement(answers, generator)]
        self.n += len(found)
        self.n_kept += sum(one == other for one, other in zip(answers, found, strict=True))
        return found


def shuffle_answers(harness_task: Any, name: str, shots: int, seed: int) -> ShuffledAnswers:
    """Makes the harness shuffle the answers of a prompt's examples. HeadroomError: they cannot be shuffled."""
    if shots == 1:
        raise HeadroomError(f"task {name}: shuffled labels need at least 2 examples in the prompt; got 1")
    if harness_task.multiple_input:
        raise HeadroomError(f"task {name}: shuffled labels need answers that follow the question; choose true labels")
    shuffled = ShuffledAnswers(seed)
    rewrite_answers(harness_task, shuffled)
    return shuffled


def use_words(harness_task: Any, name: str) -> None:
    """Makes the harness write a fixed word for each choice. HeadroomError: choices differ from question to question."""
    own, is_choice = harness_task.doc_to_choice, harness_task.OUTPUT_TYPE == "multiple_choice"
    rows = (row for rows in (harness_task.eval_docs, harness_task.fewshot_docs()) for row in rows or ())
    first = sorted(own(next(rows))) if is_choice else []
    if not 0 < len(first) <= len(WORDS) or any(sorted(own(row)) != first for row in rows):
        raise HeadroomError(f"task {name}: unrelated labels need the same choices in all questions, at most "
                            f"{len(WORDS)}; choose shuffled labels, or a task such as rte or demo_outfit")  # fmt: skip
    words = dict(zip(first, (word for word in WORDS if word not in first), strict=False))
    harness_task.doc_to_choice = lambda row, *more: [words[choice] for choice in own(row, *more)]


def derangement(values: Sequence[Hashable], generator: np.random.Generator) -> list[int]:
    """Returns an order in which as few places as possible have an equal value: none if no value makes up more than
    half."""
    rank = dict(zip(dict.fromkeys(values), generator.permutation(len({*values})), strict=True))
    order = sorted(range(len(values)), key=lambda at: rank[values[at]])  # equal ones are neighbors
    shift, found = max(map(values.count, values)), [0] * len(values)
    for place, other in zip(order, [*order[shift:], *order[:shift]], strict=True):
        found[place] = other
    return found
