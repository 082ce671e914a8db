"""The shell command that measures what a screen shows, and finds what is stored."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.models.subject import Subject


def command_line(command: str, subject: Subject, data_dir: str | None, arguments: Sequence[str | int]) -> str:
    """`headroom COMMAND` for this model with `arguments`."""
    spec, bos = subject.spec, subject.bos
    words = [program(), command, "--model", spec.model, "--precision", spec.precision]
    words += [] if bos == subject.identity.default_bos else ["--bos" if bos else "--no-bos"]
    words += ["--task-data", data_dir] if data_dir else []
    return shlex.join([*words, *map(str, arguments)])


def program() -> str:
    """`headroom` where a shell finds it, else the path to it from where the app was started: in a clone .venv/bin/."""
    beside = Path(sys.executable).with_name("headroom")
    if shutil.which("headroom") or not beside.exists():
        return "headroom"
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)
