"""A caption is one idea of at most 90 characters; the rest is in its help."""

import ast

from tests.conftest import REPOSITORY

LONGEST = 90


def literals(file):
    """The length and text of each caption that is a literal, or a constant of its module; a value counts for none."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    constants = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "caption":
            said = call.args[0] if call.args else None
            said = constants.get(said.id, said) if isinstance(said, ast.Name) else said
            parts = said.values if isinstance(said, ast.JoinedStr) else [said]
            texts = [part.value for part in parts if isinstance(part, ast.Constant)]
            yield "".join(text for text in texts if isinstance(text, str))


def test_captions_are_short():
    found = [(file.name, text) for file in sorted(REPOSITORY.glob("pages/**/*.py")) for text in literals(file)]
    assert len([text for _, text in found if text]) > 20
    assert [each for each in found if len(each[1].replace("**", "")) > LONGEST] == []
