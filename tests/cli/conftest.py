"""What the tests of the command line share."""

import json

import pytest

from engine.__main__ import main
from tests.conftest import TEXT


@pytest.fixture
def cli(tmp_path, capsys, monkeypatch):
    """Runs a command line in this process: (exit code, standard output, lines on standard error)."""
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "results"))
    monkeypatch.delenv("HEADROOM_TASK_DATA", raising=False)
    monkeypatch.setenv("HEADROOM_PLACE", "")  # --place sets it

    def run(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stopped:
            code = stopped.code
        out, err = capsys.readouterr()
        if "--json" in arguments and out:  # strictly one object: Python's own reader takes NaN too
            json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        return code, out, [line for line in err.splitlines() if line.strip()]

    return run


@pytest.fixture
def told(cli):
    """What a command that succeeds prints as JSON."""

    def told(*arguments):
        code, out, lines = cli(*arguments, "--json")
        assert code == 0, lines
        return json.loads(out)

    return told


@pytest.fixture
def tiny(tiny_opt):
    """The options of the tiny model."""
    return "--model", tiny_opt, "--precision", "fp32"


def write_lambada(folder, n):
    """Rows of LAMBADA's form in a folder of task data: the beginnings of a text, each to the end of a word."""
    words = TEXT.split()
    rows = [json.dumps({"text": " ".join(words[at : at + 12])}) for at in range(n)]
    (folder / "lambada_openai").mkdir(parents=True)
    for split in ("train", "validation"):
        (folder / "lambada_openai" / f"{split}.jsonl").write_text("\n".join(rows))
    return folder


def own_text(folder, text):
    """A file of a text."""
    file = folder / "own.txt"
    file.write_text(text, encoding="utf-8")
    return file


def refused(result, code, *parts):
    got, out, lines = result
    assert got == code and out == ""
    assert len(lines) == 1 and "Traceback" not in lines[0]
    for part in parts:
        assert part in lines[0], lines[0]
