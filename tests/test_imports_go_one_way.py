"""app -> pages -> pages.ui -> engine -> cache, never back, and importing any of them does no heavy work."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
ORDER = ["cache", "engine", "pages.ui", "pages", "app"]  # each may import from those before it and from itself
DRAWING = {"streamlit", "altair", "vl_convert"}
HEAVY = {"torch", "transformers", "lm_eval", "bitsandbytes", "streamlit", "accelerate", "datasets"}


def sources():
    for package in ("cache", "engine", "pages"):
        yield from (REPOSITORY / package).rglob("*.py")
    yield REPOSITORY / "app.py"


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def place(module: str) -> str | None:
    """The part of the app a module belongs to, or None for a library."""
    return max((part for part in ORDER if module == part or module.startswith(part + ".")), key=len, default=None)


def imports(path: Path, top_level_only: bool = False):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports in full"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", list(sources()), ids=dotted)
def test_imports_go_one_way(path):
    # the command line is a front end as app.py is: it has the report of a study drawn
    here = "app" if dotted(path) == "engine.__main__" else place(dotted(path))
    for name in imports(path):
        there = place(name)
        if there is not None:
            assert ORDER.index(there) <= ORDER.index(here), f"{dotted(path)} imports {name}"
        if here in ("cache", "engine"):
            assert name.split(".")[0] not in DRAWING, f"{dotted(path)} imports {name}"
        if here == "cache":
            assert there in (None, "cache"), f"{dotted(path)} imports {name}: the store knows no model and no task"


@pytest.mark.parametrize("path", [p for p in sources() if place(dotted(p)) in ("cache", "engine")], ids=dotted)
def test_heavy_libraries_are_imported_where_first_needed(path):
    if "making" in path.parts:
        return  # the scripts that made the demo model are run by hand, never imported by the app
    heavy = {name.split(".")[0] for name in imports(path, top_level_only=True)} & HEAVY
    assert not heavy, f"{dotted(path)} imports {heavy} at the top"


@pytest.mark.parametrize("path", [p for p in sources() if place(dotted(p)) in ("pages", "pages.ui", "app")], ids=dotted)
def test_screens_leave_the_heavy_work_to_the_worker(path):
    """The first screen must not wait for torch; a function of a page would import it in the script's thread."""
    assert not {name.split(".")[0] for name in imports(path)} & (HEAVY - {"streamlit"})


def test_importing_the_whole_engine_leaves_torch_out():
    modules = [dotted(p) for p in (REPOSITORY / "engine").rglob("*.py") if not {"making", "__main__.py"} & {*p.parts}]
    modules += ["cache", "engine.__main__"]
    code = f"import sys\nfor m in {modules!r}: __import__(m)\nprint(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
