"""What small models lack is said: a model of one layer has no QK trace, and a short window cuts questions. What
controls give as an example suits the model, and what they say of the questions is so."""

import json

import numpy as np
import pytest

from engine.accuracy.evaluation import Answers
from engine.heads.induction import SCORES, InductionScores
from engine.models.masks import parse_edits
from engine.shapes import ModelShape
from engine.views.accuracy import cut_lines
from pages.ui.controls import controls
from pages.ui.induction import charts, tables


def test_a_score_that_no_head_has_makes_a_sound_chart():
    shape = ModelShape(1, 4, 4, 16, 4, 16, 320, 64)
    mean = {name: np.linspace(0, 1, 4)[None] for name in SCORES} | {"qk_trace": np.full((1, 4), np.nan)}
    found = InductionScores(mean, dict.fromkeys(SCORES, np.full((1, 4), np.nan)), dict.fromkeys(SCORES, 1))
    frame = tables.head_scores(shape, found, ()).assign(pruned=False)
    for score in SCORES:
        json.dumps(charts.score_map(frame, score).template, allow_nan=False)  # a browser's JSON knows no NaN
    assert tables.in_words(frame, "qk_trace") == "4 heads; it is defined for none of them."
    assert tables.in_words(frame, "prefix_matching").startswith("4 heads; highest: L0H3 1")


def test_questions_that_the_window_cuts_are_counted():
    answers = Answers((), np.zeros((3, 2)), np.zeros((3, 2), bool), np.array([0, 7, 1]), False)
    assert cut_lines(answers) == [
        "**2** of them do not fit the model's window: their first tokens, of the examples, are left out"
    ]
    assert cut_lines(Answers((), answers.log_likelihood_nats, answers.greedy, np.zeros(3, int), False)) == []


@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 1), (2, 4), (4, 8), (30, 9), (64, 72)])
def test_the_example_of_a_mask_is_one(n_layers, n_heads):
    shape = ModelShape(n_layers, n_heads, n_heads, 8 * n_heads, 8, 64, 512, 256)
    mask = parse_edits(controls.example_mask(shape), shape).prune
    assert not mask.is_full and mask.n_ffns_pruned == 1 and mask.n_heads_pruned >= 1
