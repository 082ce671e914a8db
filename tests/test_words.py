"""The terms of docs/glossary.md exist in the code, and the words that they replace do not come back."""

import importlib
import re

import pytest

from tests.conftest import REPOSITORY

TEXT = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([\w.]+)` \|$", TEXT, re.M)
STRUCK = r"(?<=[0-9}]) %(?! \d|\w)|cannot be had|\bwhoever\b|\bwhence\b|\bput right\b|\banew\b"


def test_the_glossary_has_about_fifty_terms_each_with_a_class_of_its_own():
    terms, names = ([row[at].strip() for row in ROWS] for at in (0, 2))
    assert 45 <= len(terms) <= 70 and len(terms) == len(set(terms)) and len(names) == len(set(names))
    assert len(ROWS) == TEXT.count("\n| ") - TEXT.count("\n| Term "), "each row names a class"


@pytest.mark.parametrize(("term", "name"), [(term, name) for term, _, name in ROWS])
def test_a_term_names_its_class(term, name):
    module, _, defined = name.rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), defined), type)


def test_words_that_were_struck_out_do_not_come_back():
    folders = [REPOSITORY / name for name in ("cache", "docs", "engine", "pages")]
    files = [*REPOSITORY.glob("*.*"), *(file for folder in folders for file in folder.rglob("*.*"))]
    sources = [file for file in files if file.suffix in (".py", ".md", ".js")]
    found = {file.name: re.findall(STRUCK, file.read_text(encoding="utf-8"), re.I) for file in sources}
    assert len(sources) > 300 and {name: words for name, words in found.items() if words} == {}
