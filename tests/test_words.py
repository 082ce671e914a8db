"""The terms of docs/glossary.md exist in the code, and the words that they replace do not come back."""

import importlib
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([\w.]+)` \|$",
                  (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8"), re.M)  # fmt: skip


def test_the_glossary_has_about_fifty_terms_each_once():
    terms = [term.strip() for terms, _, _ in ROWS for term in terms.split(",")]
    assert 45 <= len(terms) <= 70 and len(terms) == len(set(terms))


@pytest.mark.parametrize(("term", "name"), [(term, name) for term, _, name in ROWS])
def test_a_term_names_its_class(term, name):
    module, _, defined = name.rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), defined), type)
