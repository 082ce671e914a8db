"""The terms of docs/glossary.md exist in the code, and the words that they replace do not come back."""

import importlib
import re
from collections import Counter

import pytest

from tests.conftest import REPOSITORY

TEXT = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([\w.]+)` \|$", TEXT, re.M)
STRUCK = r"(?<=[0-9}]) %(?! \d|\w)|cannot be had|\bwhoever\b|\bwhence\b|\bput right\b|\banew\b"


def test_the_glossary_has_about_fifty_terms_each_with_a_class_of_its_own():
    terms, names = ([row[at].strip() for row in ROWS] for at in (0, 2))
    assert 45 <= len(terms) <= 70 and len(terms) == len(set(terms)) and len(names) == len(set(names))
    assert len(ROWS) == TEXT.count("\n| ") - TEXT.count("\n| Term "), "each row names a class"


def test_a_term_is_one_class():
    """No other class has the name of a term or of its class, and no public name is that of two classes."""
    nouns = {name.rpartition(".")[2]: name for _, _, name in ROWS}
    nouns |= {re.sub(r"\W", "", noun.title()): name for terms, _, name in ROWS for noun in terms.split(", ")}
    defined = list[tuple[str, str]]()
    for file in (file for top in ("cache", "engine", "pages") for file in (REPOSITORY / top).rglob("*.py")):
        module = ".".join(file.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
        classes = re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.M)
        defined += [(each, f"{module}.{each}") for each in classes]
    bare = [(name.lstrip("_"), full) for name, full in defined]
    assert [full for name, full in bare if nouns.get(name, full) != full] == []
    public = Counter(name for name, _ in defined if not name.startswith("_"))
    assert len(public) > 300 and [name for name, n in public.items() if n > 1] == []


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
