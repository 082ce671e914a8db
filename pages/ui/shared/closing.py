"""The shell command that measures what a screen shows, and finds what is stored."""

import shlex
from collections.abc import Sequence

from engine.models.loading import LoadSpec


def command_line(
    command: str, spec: LoadSpec, bos: bool | None, data_dir: str | None, arguments: Sequence[str | int]
) -> str:
    """`python -m engine COMMAND` with the sidebar's settings and `arguments`."""
    words = ["python", "-m", "engine", command, "--model", spec.model, "--precision", spec.precision]
    words += [] if bos is None else ["--bos" if bos else "--no-bos"]
    words += ["--task-data", data_dir] if data_dir else []
    return shlex.join([*words, *map(str, arguments)])
