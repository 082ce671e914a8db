"""Private and fragile parts of lm-evaluation-harness. Read in version 0.4.13; each has a test in
tests/engine/test_library_internals.py.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def task_config(manager: Any, name: str) -> dict[str, Any]:
    """The config of a task that a TaskManager knows, with the functions that its YAML names. The public ways give a
    task, for which rows are fetched, or a config with the names of the functions."""
    from lm_eval.tasks._yaml_loader import load_yaml

    return dict(load_yaml(str(manager.task_index[name].yaml_path), resolve_func=True))


def has_too_few_rows(error: Exception) -> bool:
    """Whether a prompt could not be rendered since there are fewer rows than examples: the harness lets the error of
    Python's random.sample through."""
    return "larger than population" in str(error)


@contextmanager
def templates_compiled_once() -> Iterator[None]:
    """Context in which the harness compiles each prompt template once, not once a question: 3 to 10 times faster."""
    from lm_eval import utils

    env: Any = utils.env
    env.from_string = functools.lru_cache(maxsize=64)(env.from_string)
    try:
        yield
    finally:
        del env.from_string  # the class's own method shows again
