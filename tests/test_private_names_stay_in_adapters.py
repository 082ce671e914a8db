"""Private names of libraries are used in adapter modules only, so that an upgrade has one place to check per library.

LIBRARIES lists adapters and names; names that begin with an underscore need no row.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import pytest

from tests.conftest import REPOSITORY


@dataclass(frozen=True)
class Library:
    """`names` are regular expressions for mentions: an import as `import a.b`, an attribute as `a.b`, a named argument
    as `a=`, a string as `"a`. `exceptions` are files with the reason."""

    adapters: tuple[str, ...]
    names: tuple[str, ...]
    exceptions: dict[str, str] = field(default_factory=dict)


LIBRARIES = {
    "streamlit": Library(
        tuple(f"pages/ui/page/streamlit_internals.{kind}" for kind in ("py", "css", "js")),
        (r"^import streamlit\.(?!components\.v2\b)", r"data-(testid|tag|heading-text)\b", r"\.st[A-Z]\w+"),
    ),
    "transformers": Library(
        ("engine/architecture/transformers_internals.py", "engine/checkpoints/gguf_internals.py"),
        (
            r"^import transformers\.\w+\.",
            r"\b_attn_implementation$",
            r"\b_is_hf_initialized$",
            r"\ball_tied_weights_keys$",
            r"\bALL_ATTENTION_FUNCTIONS\b",
            r"\bMODEL_FOR_CAUSAL_LM_MAPPING$",
            r'^"transformers\.data\b',
        ),
        {"engine/export/modeling_pruned.py": "is copied next to exported weights, where Headroom is not installed"},
    ),
    "gguf": Library(("engine/checkpoints/gguf_internals.py",), (r"^GGUFReader=",)),
    "bitsandbytes": Library(
        ("engine/kernels/bitsandbytes_internals.py",),
        (r"^import bitsandbytes\b", r'^"bitsandbytes\.', r"\.S?CB$", r"^S?CB=", r"\bstate\.threshold$"),
    ),
    "torch": Library(
        ("engine/architecture/torch_internals.py",),
        (r"\btorch\._", r"\b_int_mm$", r"\btorch\.compile$", r"\.__class__$"),
        {"engine/checkpoints/tensor_index.py": "compares names that pickles in checkpoints hold, imports none"},
    ),
    "accelerate": Library(
        ("engine/placement/accelerate_internals.py",), (r"^import accelerate\b", r'^"accelerate\.', r"\b_hf_hook$")
    ),
    "huggingface_hub": Library(
        ("engine/checkpoints/hub_internals.py",), (r"\.HF_HUB_CACHE$", r'^"models--', r'^"(blobs|refs)$')
    ),
    "lm_eval": Library(
        ("engine/questions/lm_eval_internals.py",),
        (r"\b_yaml_loader\b", r"\btask_index$", r"larger than population", r"^import lm_eval\.utils\b"),
    ),
    "diskcache": Library(
        ("cache/diskcache_internals.py",),
        (
            r"^import diskcache\.(Cache|Disk|core)\b",
            r"\._(con|directory|local|sql|timeout)$",
            r"\b(FROM|INTO|UPDATE) (Cache|Settings)\b",
        ),
    ),
    "pickle": Library(("engine/checkpoints/tensor_index.py",), (r"\bpickle\._",)),
    "ray": Library(("engine/distributed/ray_internals.py",), (r"^_temp_dir=", r"\bray\._private\b")),
}
EXEMPT = {file for library in LIBRARIES.values() for file in (*library.adapters, *library.exceptions)}
PUBLIC = {"_replace", "_asdict", "_fields", "_exit"}  # documented: of named tuples, and of os


@dataclass(frozen=True)
class Source:
    """A file, its names each with a line: what it mentions, as `LIBRARIES` has it, the names with an underscore that it
    uses, and all names that it defines."""

    mentions: tuple[tuple[int, str], ...]
    used: tuple[tuple[int, str], ...] = ()
    defined: frozenset[str] = frozenset()


@cache
def sources() -> dict[str, Source]:
    """By path, every Python module, stylesheet and script that is not a test."""
    found = [REPOSITORY / "app.py", REPOSITORY / "headroom.py"]
    for package in ("cache", "engine", "pages"):
        found += [path for kind in ("py", "css", "js") for path in (REPOSITORY / package).rglob(f"*.{kind}")]
    texts = {path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8") for path in sorted(found)}
    return {path: source_of(path, text) for path, text in texts.items()}


def source_of(path: str, text: str) -> Source:
    """What the text of a file mentions; docstrings are left out. In a stylesheet or script each line is a mention."""
    if not path.endswith(".py"):
        return Source(tuple(enumerate(text.splitlines(), 1)))
    nodes = list(ast.walk(ast.parse(text)))
    documentation = {node.value for node in nodes if isinstance(node, ast.Expr)}
    mentions, used, defined = [], [], set()
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = [f"{module}{alias.name}" for alias in node.names]
            mentions += [(node.lineno, f"import {name}") for name in names]
            used += [(node.lineno, part) for name in names for part in name.split(".")]
        elif isinstance(node, ast.Attribute):
            mentions.append((node.lineno, dotted(node)))
            used.append((node.lineno, node.attr))
            if isinstance(node.ctx, ast.Store) and dotted(node.value) == "self":
                defined.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            mentions.append((node.lineno, f"{node.arg}="))
            used.append((node.lineno, node.arg))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
            mentions.append((node.lineno, f'"{node.value}'))
        elif isinstance(node, ast.Call) and dotted(node.func) in ("getattr", "hasattr", "setattr", "delattr"):
            used.append((node.lineno, getattr(node.args[1], "value", "")))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
    private = tuple((line, name) for line, name in used if isinstance(name, str) and is_private(name))
    return Source(tuple(mentions), private, frozenset(defined))


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an attribute, with nothing for a part that is not a name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not name.endswith("__") and name not in PUBLIC


def misplaced(library: Library, files: Mapping[str, Source]) -> list[str]:
    """A line for each mention of a library's private names outside its adapters and exceptions."""
    names, allowed = re.compile("|".join(library.names)), {*library.adapters, *library.exceptions}
    return [
        f"{path}:{line}: `{' '.join(text.split())[:80]}` may be used only in {', '.join(library.adapters)}"
        for path, source in files.items()
        if path not in allowed
        for line, text in source.mentions
        if names.search(text)
    ]


def unknown(files: Mapping[str, Source]) -> list[str]:
    """A line for each name with an underscore that the module itself does not define."""
    return [
        f"{path}:{line}: `{name}` is private to another module; if a library's, use it in the library's adapter"
        for path, source in files.items()
        if path not in EXEMPT
        for line, name in source.used
        if name not in source.defined
    ]


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_private_names_of_a_library_are_used_in_its_adapter_alone(name):
    found = misplaced(LIBRARIES[name], sources())
    assert not found, "\n".join(found)


def test_a_name_with_an_underscore_is_used_only_in_the_module_that_defines_it():
    found = unknown(sources())
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_row_of_the_table_is_still_needed(name):
    """A row whose name no adapter uses any more would only seem to guard something."""
    library, files = LIBRARIES[name], sources()
    assert {*library.adapters, *library.exceptions} <= files.keys(), "an adapter is gone, or has another name"
    texts = [text for path in library.adapters for _, text in files[path].mentions]
    assert [row for row in library.names if not any(re.search(row, text) for text in texts)] == []


@pytest.mark.parametrize(
    "source",
    [
        "from numpy._core import multiarray",
        "frame._mgr = None",
        "draw(frame, _key=1)",
        'getattr(frame, "_mgr")',
        "class Mine(Foreign):\n    def f(self):\n        return self._theirs",
    ],
)
def test_a_name_with_an_underscore_needs_no_row(source):
    assert len(unknown({"pages/here.py": source_of("here.py", source)})) == 1


@pytest.mark.parametrize(
    "source",
    [
        "pair._replace(a=1)",
        "class Mine:\n    def __init__(self, other):\n        self._own = other._own",
        "def _own(): ...\n_own()",
    ],
)
def test_a_name_of_our_own_may_have_an_underscore(source):
    assert unknown({"pages/here.py": source_of("here.py", source)}) == []
