"""Prompts as chats on screen: measured as the command line does it, and offered where the model has a template."""

import shutil

import pytest

from engine.questions.chats import FILE
from tests.engine.test_chats import TURNS
from tests.pages.conftest import command_of, components, figure, same_on_the_command_line, settled

PROMPT = "Where is Oslo?"
ORDER = {"order": "random", "heads": "50"}
SCREENS = {"text": {"text_text": "Pasted text", "text_own": PROMPT}, "": {"limit": "16"}}


@pytest.fixture
def chatty(tiny_opt, tmp_path):
    """The folder of a tiny model with a chat template."""
    folder = tmp_path / "chatty"
    shutil.copytree(tiny_opt, folder)
    (folder / FILE).write_text(TURNS)
    return folder


@pytest.mark.slow("measures a screen twice")
@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_of_chats_shows_what_its_command_prints(
    screen, measures_ahead, chatty, open_app, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(PROMPT)
    at = settled(open_app(screen, model=str(chatty), **ORDER, **SCREENS[screen], chat="true"))
    result = same_on_the_command_line(at, capsys)
    assert "--chat" in command_of(at) and result["cached"]
    if screen == "":
        assert figure(at)[0] == f"{100 * result['acc']:.1f}%"
    else:
        assert any("</s>" in str(data) for data in components(at)), "the text as the model reads it"
        written = same_on_the_command_line(at, capsys, len(command_of(at).splitlines()) - 1)
        assert written["prompt"] == f"</s>USER: {PROMPT}\nASSISTANT:\n" and written["cached"]
    plain = settled(open_app(screen, model=str(chatty), **ORDER, **SCREENS[screen]))
    assert "--chat" not in command_of(plain)


@pytest.mark.parametrize("screen", SCREENS)
def test_a_model_without_a_template_says_so(screen, open_app, tiny_opt):
    at = open_app(screen, chat="true", **ORDER, **SCREENS[screen])
    assert "has no chat template" in at.error[0].value
