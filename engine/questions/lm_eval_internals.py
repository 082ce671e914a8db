"""Private and fragile parts of lm-evaluation-harness. Read in version 0.4.13; each has a test in
tests/engine/test_library_internals.py. Also SQuAD's two answer metrics (Rajpurkar et al. 2016), which its ReCoRD needs:
on text normalized by case, punctuation and articles.
"""

import functools
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

PUNCTUATION = str.maketrans("", "", string.punctuation)


def task_config(manager: Any, name: str) -> dict[str, Any]:
    """The config of a task that a TaskManager knows, with the functions that its YAML names. The public ways give a
    task, for which rows are fetched, or a config with the names of the functions."""
    from lm_eval.tasks._yaml_loader import load_yaml

    return dict(load_yaml(str(manager.task_index[name].yaml_path), resolve_func=True))


def has_too_few_rows(error: Exception) -> bool:
    """Whether a prompt could not be rendered since there are fewer rows than examples: the harness lets the error of
    Python's random.sample through."""
    return "larger than population" in str(error)


def as_logged(value: Any) -> Any:
    """A value that JSON does not have, as the harness writes it in its logs."""
    from lm_eval.utils import handle_non_serializable

    return handle_non_serializable(value)


def compile_templates_once() -> None:
    """Makes the harness compile each prompt template once, not once a question: 3 to 10 times faster. It stays so, as
    other threads may be rendering."""
    from lm_eval import utils

    env: Any = utils.env
    vars(env).setdefault("from_string", functools.lru_cache(maxsize=64)(type(env).from_string.__get__(env)))


def rewrite_answers(task: Any, rewrite: Callable[[Sequence[str]], Sequence[str]]) -> None:
    """Makes a task put other answers after the examples of each prompt: those that `rewrite` returns for its own, in
    order. The harness builds the turn of the question, which has no answer, last."""
    answers, build_turn = list[Any](), task.build_qa_turn

    def build(**given: Any) -> list[Any]:
        messages = build_turn(**given)
        if given.get("a") is not None:
            answers.append(messages[-1])
        elif answers:
            for message, answer in zip(answers, rewrite([each.content for each in answers]), strict=True):
                message.content = answer
            answers.clear()
        return messages

    task.build_qa_turn = build


def normalized(answer: str) -> str:
    """The answer in lower case without punctuation, articles and repeated blanks."""
    return " ".join(re.sub(r"\b(?:a|an|the)\b", " ", answer.lower().translate(PUNCTUATION)).split())


def compute_exact(gold: str, prediction: str) -> int:
    """1 when both answers are equal once normalized, else 0."""
    return int(normalized(gold) == normalized(prediction))


def compute_f1(gold: str, prediction: str) -> float:
    """Harmonic mean of word precision and recall; two empty answers agree fully."""
    gold_words, predicted_words = normalized(gold).split(), normalized(prediction).split()
    if not gold_words or not predicted_words:
        return float(gold_words == predicted_words)
    shared = sum((Counter(gold_words) & Counter(predicted_words)).values())
    return 2 * shared / (len(gold_words) + len(predicted_words))
