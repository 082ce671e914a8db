"""A GGUF file in the Model box: its size is said, it is converted, after a click if it is large, and then used as a
folder."""

import pytest

from engine.checkpoints.conversion import conversions_folder, converted
from engine.models.loading import LoadSpec
from pages.ui.controls import offers
from pages.ui.page import runtime
from tests.engine.fixtures import family_folder
from tests.engine.gguf_files import write_gguf
from tests.pages.conftest import WAIT_S, button, command_of, figure, said, settled


@pytest.fixture(scope="module")
def original(tiny_opt, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    return write_gguf(family_folder("llama", tiny_opt, folder / "model"), folder / "tiny.gguf", "Q8_0")


@pytest.fixture
def large(monkeypatch):
    """Every file is large."""
    monkeypatch.setattr(offers, "LARGE_BYTES", 0)


@pytest.mark.slow("converts a model and loads it")
def test_a_small_one_is_converted_at_once(original, open_app):
    at = open_app(model=str(original))
    assert figure(at)[0].endswith("%") and converted(original, runtime.store())
    assert f"--model {original}" in command_of(at)


@pytest.mark.slow("converts a model and loads it")
def test_a_large_one_waits_for_a_click(original, open_app, large):
    at = open_app(model=str(original))
    assert "tiny.gguf is converted once." in said(at) and "to write to" in said(at) and "free on the disk" in said(at)
    assert not conversions_folder(runtime.store()).exists()
    next(each for each in at.button if each.label.startswith("Convert ")).click()
    at.run()
    assert figure(settled(at))[0].endswith("%")


def test_cancel_leaves_nothing(original, open_app, large, monkeypatch):
    import time

    def slow(file, store):
        for number in range(1000):
            time.sleep(0.05)
            yield offers.Progress(number, 1000, message=f"converting {file.name}")

    monkeypatch.setattr(offers, "convert", slow)
    at = open_app(model=str(original))
    next(each for each in at.button if each.label.startswith("Convert ")).click()
    at.run()
    assert "onverting tiny.gguf" in at.run().get("progress")[0].proto.text
    button(at, "Cancel").click()
    at.run()
    runtime.jobs().join(f"conversion of {original}", WAIT_S)
    assert any(each.label.startswith("Convert ") for each in settled(at).button)


def test_a_file_that_cannot_be_read_is_said(tmp_path, open_app):
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + bytes(20))
    assert "broken.gguf" in said(open_app(model=str(file))) and not LoadSpec(str(file)).is_demo


def test_a_full_disk_is_said_before(original, open_app, monkeypatch):
    from engine.checkpoints import conversion

    monkeypatch.setattr(conversion, "free_on_disk", lambda folder: 1000)
    at = open_app(model=str(original))
    assert "1,000 B is free on the disk" in said(at)
    assert next(each for each in at.button if each.label.startswith("Convert ")).disabled
