"""A GGUF file as `--model`: what it takes is said in one line before it is converted, once."""

import pytest

from engine.errors import HeadroomError
from engine.models import session
from tests.engine.fixtures import family_folder
from tests.engine.gguf_files import write_gguf


@pytest.fixture(scope="module")
def file(tiny_opt, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    return write_gguf(family_folder("llama", tiny_opt, folder / "model"), folder / "tiny.gguf", "Q8_0")


def test_its_size_is_known_without_converting_it(file, told):
    found, of_folder = told("models", file), told("models", file.parent / "model")
    assert found["source"] == "its GGUF file" and found["parameters"] == of_folder["parameters"]
    assert len(told("models")["models"]) == 1


def test_it_is_announced_and_listed(file, cli, monkeypatch):
    monkeypatch.setattr(session, "ways_of", lambda *of: refuse())  # it is known by then, and not loaded
    code, _, lines = cli("evaluate", "--model", str(file), "--task", "pairs_plural")
    said = [line for line in lines if "is converted once" in line]
    assert code == 1 and lines[-1] == "headroom: known"
    assert len(said) == 1 and said[0].startswith("headroom: tiny.gguf is converted once: ") and "to write to" in said[0]
    code, out, lines = cli("models")
    assert code == 0 and f"{file}: " in out and not lines


def refuse():
    raise HeadroomError("known")


def test_one_that_cannot_be_read_is_one_line(tmp_path, cli):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(10))
    code, _, lines = cli("evaluate", "--model", str(tmp_path / "broken.gguf"), "--task", "pairs_plural")
    assert code == 1 and len(lines) == 1 and "broken.gguf" in lines[0]
