"""What the documents say is so: packages and modules, screens, commands and options, files, names, make targets."""

import ast
import re
import shlex
from pathlib import Path

import pytest
import streamlit as st

from engine.architecture.families import FAMILIES
from headroom import settings
from pages.ui.page.screens import STORY
from tests.conftest import REPOSITORY
from tests.write_docs import PAGE, WRITTEN, page, parser

CONTRIBUTING, ARCHITECTURE = REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "docs" / "architecture.md"
DOCS = [REPOSITORY / "README.md", REPOSITORY / "SECURITY.md", CONTRIBUTING, *sorted(ARCHITECTURE.parent.glob("*.md"))]
PACKAGES = sorted(
    init.parent for top in ("cache", "engine", "pages") for init in (REPOSITORY / top).rglob("__init__.py")
)
SCREENS = sorted(file.stem for file in (REPOSITORY / "pages").glob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def told(path: Path) -> list[str]:
    """What a document sets in backticks or as a line of a code block."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", read(path), re.M | re.S)
    prose = re.sub(r"^```.*?^```", "", read(path), flags=re.M | re.S)
    return [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", prose)


@pytest.mark.parametrize("package", PACKAGES, ids=relative)
def test_a_package_says_what_each_of_its_modules_gives(package):
    named = re.findall(r"^`([\w.]+)`: \S", docstring(package), re.M)
    there = {file.stem for file in package.glob("*.py")} - {"__init__"}
    there |= {folder.name for folder in package.iterdir() if (folder / "__init__.py").exists()}
    there |= {file.name for file in package.glob("*.[jc]s*") if not file.with_suffix(".py").exists()}
    if package.name == "ui":
        there -= {*SCREENS}  # a package of one screen has its name
    if package.name == "families":
        there -= {*FAMILIES}
    data = {name for name in named if (package / name).is_dir()}
    assert len(named) == len(set(named)) and set(named) == there | data
    assert docstring(package).splitlines()[0].endswith(".")


def headings(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    words = re.findall(r"^#+ (.+)", re.sub(r"^```.*?^```", "", read(path), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in words}


def titles() -> dict[str, str]:
    """The title of each page, by its file, in the order of the navigation."""
    return {f"pages/{screen.file}.py": screen.title for screens in STORY.values() for screen in screens}


def test_one_number_takes_six_files_from_its_control_to_its_store():
    steps = re.search(r"takes six files.*?```python\n(.*?)```", ARCHITECTURE.read_text(encoding="utf-8"), re.S)
    assert steps is not None
    lines = [re.split(r"\s{2,}", line)[:2] for line in steps[1].splitlines()]
    assert len(lines) == 6 and lines[0][0] == "pages/prune.py"
    assert all(code in (REPOSITORY / path).read_text(encoding="utf-8") for path, code in lines)


def test_every_screen_is_in_the_navigation_and_the_docs():
    assert sorted(titles()) == [f"pages/{name}.py" for name in SCREENS]
    assert re.findall(r"^## (.+)", read(REPOSITORY / "docs" / "screens.md"), re.M) == [*titles().values()]


def test_every_command_and_option_is_told():
    assert read(PAGE) == page(parser()), "run `.venv/bin/python -m tests.write_docs`"


@pytest.mark.parametrize("path", WRITTEN, ids=relative)
def test_every_criterion_order_and_family_is_told(path):
    assert read(path) == WRITTEN[path](read(path)), "run `.venv/bin/python -m tests.write_docs`"


@pytest.mark.parametrize("path", DOCS, ids=relative)
def test_every_command_that_is_shown_can_be_parsed(path):
    for line in told(path):
        words = shlex.split(line.removeprefix(".venv/bin/"), comments=True) if "headroom " in line else []
        if words[:1] == ["headroom"] and len(words) > 1 and "..." not in words:
            if "." in words[1].partition("=")[0]:  # settings of the app, of which Streamlit refuses unknown ones
                assert [st.get_option(name) for name in settings(words[1:])]
            else:
                parser().parse_args(words[1:])


@pytest.mark.parametrize("path", DOCS, ids=relative)
def test_every_file_link_and_heading_is_there(path):
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", read(path)) if not link.startswith("http")]
    assert [link for link in links if not (path.parent / link).exists()] == []
    anchors = re.findall(r"\]\(([^)#]*)#([^)]+)\)", re.sub(r"\s+", " ", read(path)))
    found = [(file, anchor) for file, anchor in anchors if not file.startswith("http")]
    assert [each for each in found if each[1] not in headings(path.parent / each[0] if each[0] else path)] == []
    words = re.sub(r"\S*<\S*", "", "\n".join(told(path)))  # without names to be filled in
    files = set(re.findall(r"(?<![\w/.-])(?:cache|docs|engine|pages|tests)/[\w./-]*\w", words))
    assert {file for file in files - {"cache/data"} if not (REPOSITORY / file).exists()} == set()


@pytest.mark.parametrize("path", DOCS, ids=relative)
def test_every_name_of_the_code_is_there(path):
    for words in told(path):
        for name in re.findall(r"(?<![\w/.-])(?:engine|pages|cache|tests)(?:\.\w+)+", words):
            assert is_there(name), f"{relative(path)} names {name}"


def is_there(name: str) -> bool:
    """Whether it is a package, a module, or what a module defines."""
    folder, _, last = (REPOSITORY / name.replace(".", "/")).as_posix().rpartition("/")
    modules = [file for file in (Path(f"{folder}.py"), Path(folder, "__init__.py")) if file.exists()]
    defined = any(re.search(rf"^(?:def |class |){last}\b", read(module), re.M) for module in modules)
    return defined or Path(folder, last).is_dir() or Path(folder, f"{last}.py").exists()


def test_every_target_of_make_is_told_and_every_one_told_exists():
    [there] = re.findall(r"^\.PHONY: (.*)", read(REPOSITORY / "Makefile"), re.M)
    asked = {path: set(re.findall(r"^(?:\w+=\S+ )*make (\w+)", "\n".join(told(path)), re.M)) for path in DOCS}
    assert set().union(*asked.values()) <= set(there.split())
    assert asked[CONTRIBUTING] == set(there.split())
