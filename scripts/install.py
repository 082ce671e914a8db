"""Installs requirement files into the environment that runs this: `python scripts/install.py requirements.txt`.

uv takes a quarter of pip's time, but does not read pip's settings, so the settings for where packages come from are
passed to it here. If uv cannot be installed, or fails, pip installs the packages.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterable

UV = "uv==0.13.9"
HANDED_ON = ("index-url", "extra-index-url", "find-links", "constraint")
PIP = [sys.executable, "-m", "pip"]


def handed_on(settings: Iterable[str]) -> list[str]:
    """Returns the options of uv for the lines of `pip config list`, such as `global.index-url='https://a'`."""
    found: dict[str, str] = {}
    for line in sorted(settings, reverse=True):  # those of the environment (`:env:`) last, as they win
        name, is_set, value = line.partition("=")
        option = name.rpartition(".")[2]
        if is_set and option in HANDED_ON:
            found[option] = ast.literal_eval(value)
    options = [word for option, value in found.items() for each in value.split() for word in (f"--{option}", each)]
    return [*options, "--index-strategy", "unsafe-best-match"]  # the newest release of all indexes, as pip does


def install(files: Iterable[str]) -> int:
    """Installs the requirements; returns the exit status."""
    wanted = [word for file in files for word in ("-r", file)]
    settings = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True).stdout.splitlines()
    quiet = ["--quiet", "--disable-pip-version-check", "install"]
    if subprocess.run([*PIP, *quiet, UV]).returncode == 0:
        into = ["-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
        certificates = {"UV_SYSTEM_CERTS": "1"}  # those of the system, as pip has them
        by_uv = subprocess.run([sys.executable, *into, *handed_on(settings), *wanted], env=os.environ | certificates)
        if by_uv.returncode == 0:
            return 0
    return subprocess.run([*PIP, *quiet, *wanted]).returncode


if __name__ == "__main__":
    sys.exit(install(sys.argv[1:]))
