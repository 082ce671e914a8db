"""Prune tells whether the model still knows when it is right, of tasks with choices."""

import pytest

from engine.views.view import plain_text
from tests.pages.conftest import said

TITLE = "Does it still know when it's right?"


def panels(at):
    return [each.label for each in at.expander]


@pytest.mark.slow("opens a screen")
def test_the_panel_says_what_became_of_accuracy_and_calibration(open_app, measures_ahead):
    at = open_app(order="random", mask="L0H0-2 L1H*", prune_confidence="true")
    assert TITLE in panels(at)
    words = plain_text(said(at))
    assert "20 questions are too few for a verdict: " in words and "; calibration error " in words
    assert "Below the diagonal, the model is too sure." in words


@pytest.mark.slow("opens a screen")
def test_a_task_without_choices_has_no_such_panel(open_app):
    assert TITLE not in panels(open_app(task="demo_cloze", order="random", prune_confidence="true"))
