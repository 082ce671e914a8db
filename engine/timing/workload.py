"""How much there is to read for the answers to questions, in characters: known before anything is encoded."""

from collections.abc import Sequence
from functools import partial
from os.path import commonprefix

from engine.memory import Kept
from engine.models.masks import Mask
from engine.questions.encoding import MIN_SHARED
from engine.questions.rendering import Question, Questions

CHARACTERS_A_TOKEN = 4  # about
LOOKED_AT = 128  # questions, which stand for all
COUNTED: "Kept[int]" = Kept(1024)  # characters by the digest of the questions: a sweep asks once for each of its masks


def characters(questions: Sequence[Question]) -> int:
    """Characters that a forward pass reads: what a question's choices share is read once, and so is what many
    questions begin with."""
    if not questions:
        return 0
    lengths = [_together(_texts(question)) for question in questions]
    shared = len(commonprefix([text for question in questions for text in question.contexts]))
    many = len(questions) > 1 and shared * len(questions) >= MIN_SHARED * sum(lengths)
    return sum(lengths) - (shared * (len(questions) - 1) if many else 0)


def gradient_characters(questions: Sequence[Question], every_choice: bool) -> int:
    """Characters of a forward pass and a backward pass a choice, of the first gold choice or of all of them."""
    total = 0
    for question in questions:
        texts = _texts(question)
        if not every_choice:
            texts = texts[question.golds[0] : question.golds[0] + 1]
        total += min(_together(texts) * (1 + len(texts)), 2 * sum(map(len, texts)))
    return total


def gold_characters(questions: Sequence[Question]) -> int:
    """Characters of a forward pass over each question with its first gold choice."""
    return sum(len(_texts(question)[question.golds[0]]) for question in questions)


def all_characters(questions: Questions, gradients: bool = False, every_choice: bool = True) -> float:
    """Either of the two for all of the questions, going by the first of many."""
    n = min(questions.n, LOOKED_AT)
    if not n:
        return 0.0
    first = questions.order[:n]
    asked = questions.at(first)
    count = partial(gradient_characters, asked, every_choice) if gradients else partial(characters, asked)
    found = COUNTED.get((questions.digest(first), gradients, every_choice), count, lambda _: 1)
    return found * questions.n / n


def kept_share(mask: Mask) -> float:
    """About what share of a pass is left under a mask: a layer's FFN is two thirds of its weights."""
    n_layers = len(mask.ffns)
    heads = 1 - mask.n_heads_pruned / (n_layers * len(mask.heads[0]))
    return max(0.05, (heads + 2 * (1 - mask.n_ffns_pruned / n_layers)) / 3)


def _texts(question: Question) -> list[str]:
    return [context + more for context, more in zip(question.contexts, question.continuations, strict=True)]


def _together(texts: Sequence[str]) -> int:
    """Characters of one question's choices, packed into a row where they share enough."""
    shared, all_of_them = len(commonprefix(texts)), sum(map(len, texts))
    if shared < MIN_SHARED * all_of_them / len(texts):
        return all_of_them
    return all_of_them - shared * (len(texts) - 1)
