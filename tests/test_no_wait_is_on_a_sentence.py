"""Browser tests and scripts wait for marks and keys (pages/ui/page/marks.py): wording and layout can change."""

import ast
import re

import pytest

from tests.conftest import REPOSITORY

FILES = sorted([*(REPOSITORY / "tests/browser").glob("*.py"), *(REPOSITORY / "tests/benchmarks").glob("*.py")])
SENTENCE = re.compile("[A-Za-z]+(?: [A-Za-z]+){2,}")  # more than two words
BY_TEXT = {"get_by_text", "to_have_text", "to_contain_text", "not_to_have_text", "not_to_contain_text"}
WAITS = {*BY_TEXT, "wait_for", "wait_for_selector", "wait_for_function", "expect"}


def sentences(code):
    """Every text of more than two words that a call waits for, or by which an element is found."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in WAITS:
            parts = [node]
        else:
            parts = [node.value] if isinstance(node, ast.keyword) and node.arg in ("has_text", "has_not_text") else []
        found += [text for part in parts for text in texts(part) if SENTENCE.search(text)]
    return found


def texts(node):
    """Every text below a node, without keys and marks."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("keyed", "marked", "await_mark"):
        return
    for child in ast.iter_child_nodes(node):
        yield from texts(child)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_wait_is_on_a_sentence(file):
    assert sentences(file.read_text()) == []
