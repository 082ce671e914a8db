"""Imports go down: app -> pages -> pages.ui -> engine -> cache, package by package, and none does heavy work. No
modules import each other in a circle."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import HANG_S, REPOSITORY

# the packages of one screen each, named as the screen's file is
OF_SCREENS = {
    f"pages.ui.{file.stem}"
    for file in (REPOSITORY / "pages").glob("*.py")
    if (REPOSITORY / "pages" / "ui" / file.stem).is_dir()
}
ARCHITECTURE = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
# by number: a package imports from lower layers, and from packages of its own layer that do not import it back
LAYERS = {
    int(number): set(re.findall(r"`([\w.]+)`", names)) | (OF_SCREENS if "`pages.ui.<screen>`" in names else set())
    for number, names in re.findall(r"^\| (\d+) \| (.+?) \|", ARCHITECTURE, re.M)
}
LAYER = {room: number for number, rooms in LAYERS.items() for room in rooms}
SCREENS = ("pages", "pages.ui", "app")
DRAWING = {"streamlit", "altair", "vl_convert"}
OF_TORCH = {  # classes and functions of torch itself, imported where they are first needed
    "engine/export/modeling_pruned.py",  # written beside exported weights, for transformers to run
    "engine/architecture/modeling_headroom.py", "engine/training/model.py",
}  # fmt: skip
HEAVY = {"torch", "transformers", "lm_eval", "bitsandbytes", "streamlit", "accelerate", "datasets", "ray"}


def sources():
    for package in ("cache", "engine", "pages"):
        yield from (REPOSITORY / package).rglob("*.py")
    yield from (REPOSITORY / "app.py", REPOSITORY / "headroom.py")


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


MODULES = {dotted(path) for path in sources()}


def part(module: str) -> str:
    """The part of the app a module belongs to; of a library its own name."""
    return "pages.ui" if f"{module}.".startswith("pages.ui.") else module.split(".")[0]


def libraries(names: Collection[str]) -> set[str]:
    """The top of each name that is imported."""
    return {name.split(".")[0] for name in names}


def may_import_torch(path: Path) -> bool:
    return path.relative_to(REPOSITORY).as_posix() in OF_TORCH


def room(module: str) -> str | None:
    """What is in a layer: the package of a module, or a module that is in none. None for `engine` and `pages.ui`
    themselves, which hold a docstring and nothing else."""
    depth = {"engine": 2, "pages.ui": 3}.get(part(module), 1)
    names = module.split(".")[:depth]
    return ".".join(names) if len(names) == depth else None


@cache
def imports(path: Path, top_level_only: bool = False) -> tuple[str, ...]:
    tree, found = ast.parse(path.read_text(encoding="utf-8")), []
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports in full"
            found += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(found)


def other_rooms(path: Path) -> set[str]:
    return {room(name) for name in imports(path) if name in MODULES} - {None, room(dotted(path))}


def imported_modules(source: str, modules: Collection[str] = frozenset(MODULES)) -> Iterator[str]:
    """The modules among `modules` that a source imports, in functions too, but not for the type checker alone."""
    nodes = list(ast.walk(ast.parse(source)))
    ifs = [node for node in nodes if isinstance(node, ast.If)] if "TYPE_CHECKING" in source else []
    checks = [node for node in ifs if "TYPE_CHECKING" in ast.unparse(node.test)]
    for_types = {node for check in checks for part in check.body for node in ast.walk(part)}
    for node in nodes:
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found = {name if name in modules else node.module for name in names}
            yield from found.intersection(modules)


def circle(imported: Mapping[str, Collection[str]]) -> str:
    """A circle of imports as `a -> b -> a`, or "" if there is none."""
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        return " -> ".join(reversed(error.args[1]))
    return ""


def test_no_modules_import_each_other_in_a_circle():
    imported = {dotted(path): sorted({*imported_modules(path.read_text(encoding="utf-8"))}) for path in sources()}
    found = circle(imported)
    assert not found, f"modules import each other in a circle: {found}. Move what they share into a module below them."


def test_a_circle_is_found_in_functions_too_and_named():
    sources = {
        "p": "",
        "p.a": "def f():\n    from p import b",
        "p.b": "from p.c import name\nif TYPE_CHECKING:\n    import p.a",
        "p.c": "import os",
    }
    assert circle({module: {*imported_modules(source, sources)} for module, source in sources.items()}) == ""
    sources["p.c"] = "def f():\n    from p.a import f"
    found = circle({module: {*imported_modules(source, sources)} for module, source in sources.items()})
    assert found in ("p.a -> p.b -> p.c -> p.a", "p.b -> p.c -> p.a -> p.b", "p.c -> p.a -> p.b -> p.c")


def test_no_two_public_classes_share_a_name():
    where: dict[str, set[str]] = {}
    for path in sources():
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.M):
            where.setdefault(name, set()).add(dotted(path))
    assert {name: modules for name, modules in where.items() if len(modules) > 1} == {}


def test_no_folder_has_more_than_20_modules():
    folders = Counter(path.parent for path in sources() if path.name != "__init__.py")
    found = {dotted(folder): n for folder, n in folders.items() if n > 20}
    assert found.keys() <= {"engine.architecture.families"}, "a list, of one short module for each family, may"


def test_everything_is_in_one_of_twelve_layers():
    assert {room(module) for module in MODULES} - {None} == set(LAYER)
    assert sorted(LAYERS) == [*range(1, 13)]


def in_parts(*parts: str) -> list[Path]:
    return [path for path in sources() if part(dotted(path)) in parts]


def test_imports_go_one_way():
    imported: dict[str, set[str]] = {}
    for path in sources():
        if here := room(dotted(path)):
            imported.setdefault(here, set()).update(other_rooms(path))
    up = {f"{here} -> {name}" for here, names in imported.items() for name in names if LAYER[name] > LAYER[here]}
    assert not up and not circle(imported)
    assert {screen: names for screen in OF_SCREENS if (names := imported[screen] & OF_SCREENS)} == {}
    drawing = {dotted(path) for path in in_parts("cache", "engine") if libraries(imports(path)) & DRAWING}
    assert drawing == {"engine.requests.running", "engine.views.pictures"}, "in a function, at most"
    assert not [path for path in sources() if dotted(path) in ("engine", "pages.ui") and imports(path)], "words alone"
    assert not [path for path in sources() if {"scripts", "tests"} & libraries(imports(path))], "not in a wheel"


def test_only_the_command_line_looks_from_the_engine_at_pages():
    fronts = {dotted(path) for path in sources() for name in imports(path)
              if part(dotted(path)) in ("cache", "engine") and part(name) in ("pages", "pages.ui", "app")}  # fmt: skip
    assert fronts == {"engine.__main__"}


def test_heavy_libraries_are_imported_where_first_needed():
    at_top = {path: libraries(imports(path, top_level_only=True)) & HEAVY for path in in_parts("cache", "engine")}
    assert {dotted(path): found for path, found in at_top.items() if found and not may_import_torch(path)} == {}


def test_screens_leave_the_heavy_work_to_the_worker():
    """The first screen must not wait for torch; a function of a page would import it in the script's thread."""
    heavy = {dotted(path): libraries(imports(path)) & (HEAVY - {"streamlit"}) for path in in_parts(*SCREENS)}
    assert {module: found for module, found in heavy.items() if found} == {}


def test_no_screen_ends_by_losing_what_is_clicked_meanwhile():
    """st.stop takes the place of a request that waits for the run to end, a click in a fragment: `end_run` does not."""
    for path in in_parts(*SCREENS):
        assert "st.stop(" not in path.read_text(encoding="utf-8"), path


def test_importing_the_whole_engine_leaves_torch_out():
    modules = [dotted(p) for p in in_parts("engine") if p.name != "__main__.py" and not may_import_torch(p)]
    modules += ["cache", "engine.__main__"]
    code = f"import sys\nfor m in {modules!r}: __import__(m)\nprint(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", ["--help", "sweep --order taste --out x.csv"], ids=["help", "misuse"])
def test_help_and_usage_errors_do_not_wait_for_heavy_libraries(arguments):
    heavy = HEAVY | {"pandas", "altair", "scipy"}
    code = "import sys\nfrom engine.__main__ import main\ntry: main(sys.argv[1:])\n"
    code += f"except SystemExit: print('\\nloaded', sorted({heavy!r} & set(sys.modules)))"
    command = [sys.executable, "-c", code, *arguments.split()]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=HANG_S)
    assert done.stdout.splitlines()[-1:] == ["loaded []"], done.stderr
