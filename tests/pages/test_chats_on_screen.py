"""Prompts as chats on screen: measured as the command line does it, and offered where the model has a template."""

import shutil

import pytest

from engine.questions.chats import FILE
from tests.engine.test_chats import TURNS
from tests.pages.conftest import components, figure, same_on_the_command_line, settled

PROMPT = "Where is Oslo?"
ORDER = {"continue_order": "random", "passage_order": "random", "order": "random"}
SCREENS = {
    "continuation": {"continue_prompt": PROMPT, "continue_tokens": "4", "continue_heads": "50"},
    "passage": {"passage_text": "Names that return", "passage_heads": "50"},
    "": {"heads": "50", "limit": "16"},
}
SWITCH = {"continuation": "continue_chat", "passage": "passage_chat", "": "chat"}


@pytest.fixture
def chatty(tiny_opt, tmp_path):
    """The folder of a tiny model with a chat template."""
    folder = tmp_path / "chatty"
    shutil.copytree(tiny_opt, folder)
    (folder / FILE).write_text(TURNS)
    return folder


@pytest.mark.slow("measures a screen twice")
@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_of_chats_shows_what_its_command_prints(screen, chatty, open_app, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    on = {SWITCH[screen]: "true" if screen == "" else "As a chat"}
    at = settled(open_app(screen, model=str(chatty), **ORDER, **SCREENS[screen], **on))
    result = same_on_the_command_line(at, capsys)
    assert "--chat" in at.code[0].value and result["cached"]
    if screen == "continuation":
        assert result["prompt"] == f"</s>USER: {PROMPT}\nASSISTANT:\n"
    elif screen == "":
        assert figure(at)[0] == f"{100 * result['acc']:.1f}%"
    else:
        assert any("</s>" in str(data) for data in components(at)), "the text as the model reads it"
    plain = settled(open_app(screen, model=str(chatty), **ORDER, **SCREENS[screen]))
    assert "--chat" not in plain.code[0].value


def test_a_model_without_a_template_is_asked_as_typed(open_app, tiny_opt):
    at = open_app("continuation", continue_chat="As a chat", **ORDER, **SCREENS["continuation"])
    assert not at.error and "--chat" not in at.code[0].value
    at = open_app(chat="true", **ORDER)
    assert "has no chat template" in at.error[0].value
