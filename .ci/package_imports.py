"""Build hook of the wheel: turns imports of `engine` into imports of `headroom.engine`, and so for each part.

A clone has the parts side by side and imports them by their names. The wheel has them in one package, so that they and
modules of a user with the same names do not meet. Lines stay where they are: tracebacks name those of the clone.
"""

from __future__ import annotations

import ast
import re
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE, PARTS = "headroom", ("app", "cache", "engine", "pages")
FROM = re.compile(rb"from[\s\\]+")


class PackageImports(BuildHookInterface):
    """Has the wheel hold every Python file with its imports in the package, and headroom.py as the package's own."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Writes the changed files into a folder of their own, and has them packed in place of the originals."""
        self._folder = TemporaryDirectory()
        files = {each.relative_path: each.path for each in self.build_config.builder.recurse_included_files()}
        python = {target: file for target, file in files.items() if target.endswith(".py")}
        for number, (target, file) in enumerate({**python, "__init__.py": f"{self.root}/{PACKAGE}.py"}.items()):
            changed = Path(self._folder.name) / f"{number}.py"
            changed.write_bytes(in_package(Path(file).read_bytes()))
            build_data["force_include"][str(changed)] = target

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes that folder."""
        self._folder.cleanup()


def in_package(source: bytes) -> bytes:
    """A module that imports the parts from the package and binds the same names; each statement on the same line."""
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    inserted: list[tuple[int, str]] = []  # where, in bytes, and what
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").partition(".")[0] in PARTS:
            begins = FROM.match(source, starts[node.lineno - 1] + node.col_offset)
            assert begins is not None
            inserted.append((begins.end(), f"{PACKAGE}."))
        for alias in node.names if isinstance(node, ast.Import) else ():
            part, _, below = alias.name.partition(".")
            if part not in PARTS:
                continue
            inserted.append((starts[alias.lineno - 1] + alias.col_offset, f"{PACKAGE}."))
            if alias.asname is None:  # binds the part
                binds = f" as {part}" + (f", {PACKAGE}.{part} as {part}" if below else "")
                inserted.append((starts[(alias.end_lineno or 0) - 1] + (alias.end_col_offset or 0), binds))
    for at, text in sorted(inserted, reverse=True):
        source = source[:at] + text.encode() + source[at:]
    return source
