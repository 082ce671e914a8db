"""The shell command that measures what a screen shows, and finds what is stored."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.models.session import Target


def command_line(command: str, target: Target, data_dir: str | None, arguments: Sequence[str | int]) -> str:
    """`headroom COMMAND` for this model with `arguments`."""
    spec, bos = target.spec, target.bos
    words = [program(), command, "--model", spec.model, "--precision", spec.precision]
    words += [] if bos == target.identity.default_bos else ["--bos" if bos else "--no-bos"]
    words += ["--task-data", data_dir] if data_dir else []
    return shlex.join([*words, *map(str, arguments)])


def command_like(line: str, second: Target) -> str:
    """The same command for the second model of a comparison; what it writes has a name of its own."""
    words = shlex.split(line)
    for option, now in (("--model", second.spec.model), ("--precision", second.spec.precision)):
        words[words.index(option) + 1] = now
    at = words.index("--out") + 1
    words[at] = f"second-{words[at]}"
    bos = [word for word in words if word in ("--bos", "--no-bos")]
    words = [word for word in words if word not in bos]
    if "--task" in words and second.bos != second.identity.default_bos:
        words.insert(words.index("--precision") + 2, "--bos" if second.bos else "--no-bos")
    return shlex.join(words)


def program() -> str:
    """`headroom` where a shell finds it, else the path to it from where the app was started: in a clone .venv/bin/."""
    beside = Path(sys.executable).with_name("headroom")
    if shutil.which("headroom") or not beside.exists():
        return "headroom"
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)
