"""The Dockerfile, checked by its instructions: no builder is needed. What it copies, installs, and starts is there."""

import fnmatch
import json
import re
import shlex
import sys
import tomllib

import pytest
import streamlit as st
from packaging.specifiers import SpecifierSet

from engine.cli import parser
from headroom import settings
from tests.conftest import REPOSITORY

LINES = (REPOSITORY / "Dockerfile").read_text().splitlines()
INSTRUCTIONS = [tuple(line.split(maxsplit=1)) for line in LINES if line and not line.startswith("#")]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
FOLDER = "/src"


def of(name):
    return [words for instruction, words in INSTRUCTIONS if instruction == name]


def test_its_python_is_one_that_the_package_supports():
    [image] = of("FROM")
    [version] = re.fullmatch(r"python:(\d+\.\d+)-slim", image).groups()
    assert SpecifierSet(PROJECT["project"]["requires-python"]).contains(version)


def test_pip_takes_its_options_and_every_file_is_there():
    assert of("COPY") == [f". {FOLDER}"]
    [install] = [shlex.split(words) for words in of("RUN") if words.startswith("pip ")]
    from pip._internal.commands import create_command

    options, arguments = create_command("install").parse_args(install[2:])
    assert install[1] == "install" and arguments == [FOLDER] and options.cache_dir is False
    named = [path for path in options.constraints if path.startswith(FOLDER)]  # pip's own settings may add others
    assert named == [f"{FOLDER}/requirements.txt"]


def test_what_the_wheel_needs_is_not_left_out():
    ignored = (REPOSITORY / ".dockerignore").read_text().split()
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["only-include"], wheel["hooks"]["custom"]["path"], "headroom.py", "pyproject.toml", "README.md",
              "LICENSE", "requirements.txt"]  # fmt: skip
    for path in needed:
        assert (REPOSITORY / path).exists()
        assert not any(fnmatch.fnmatch(path, pattern) or path.startswith(f"{pattern}/") for pattern in ignored), path


def test_it_starts_the_app_as_a_user_of_its_own_with_a_volume_for_results():
    assert json.loads(*of("ENTRYPOINT")) == [*PROJECT["project"]["scripts"]]
    found = settings(json.loads(*of("CMD")))
    assert found["server.headless"] is True and "localhost" in found["server.allowedHosts"]
    assert all(st.get_option(name) is not None for name in ("server.address", "server.headless"))
    [user], [volume] = of("USER"), of("VOLUME")
    assert user != "root" and any(f"useradd --create-home {user}" in words for words in of("RUN"))
    assert of("ENV") == [f"HEADROOM_CACHE={volume}"] and any(f"chown {user} {volume}" in words for words in of("RUN"))
    assert int(*of("EXPOSE")) == st.get_option("server.port")
    order = [name for name, _ in INSTRUCTIONS]
    assert order.index("USER") > max(at for at, name in enumerate(order) if name == "RUN"), "root installs"


@pytest.mark.skipif(sys.platform == "win32", reason="names of users")
def test_the_commands_that_are_shown_run_it():
    where = (REPOSITORY / "docs" / "where.md").read_text()
    shown = re.findall(r"docker run (.*?)(?:`|\n)", where)
    assert len(shown) >= 2
    for line in shown:
        _, _, arguments = line.partition(" headroom")
        words = shlex.split(arguments)
        assert "/results" in line
        if words:
            parser().parse_args(words)
