"""What controls give as an example is one that the model at hand takes, and what they say of the questions is so."""

import pytest

from engine.models.masks import parse_edits
from engine.shapes import ModelShape
from pages.ui.controls import controls
from pages.ui.page.defaults import SAMPLE
from pages.ui.prune.controls import LIMIT_HELP


@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 1), (2, 4), (4, 8), (30, 9), (64, 72)])
def test_the_example_of_a_mask_is_one(n_layers, n_heads):
    shape = ModelShape(n_layers, n_heads, n_heads, 8 * n_heads, 8, 64, 512, 256)
    mask = parse_edits(controls.example_mask(shape), shape).prune
    assert not mask.is_full and mask.n_ffns_pruned == 1 and mask.n_heads_pruned >= 1


def test_the_field_shows_the_example_of_the_model_in_the_sidebar(open_app):
    at = open_app(prune_ranking="random")
    assert at.text_input(key="prune_mask").placeholder == "such as L0H3 L1H* F1", "a model of 2 layers and 4 heads"


def test_the_help_says_how_questions_are_drawn():
    assert SAMPLE in LIMIT_HELP
