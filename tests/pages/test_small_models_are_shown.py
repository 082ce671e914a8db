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
from engine.views.heads import all_scores_part
from engine.views.induction import COLUMNS, both_part, induction_view
from pages.ui.controls.study_bar import example_mask


def test_a_score_that_no_head_has_makes_a_sound_chart():
    mean = {name: np.linspace(0, 1, 4)[None] for name in SCORES} | {"qk_trace": np.full((1, 4), np.nan)}
    found = InductionScores(mean, dict.fromkeys(SCORES, np.full((1, 4), np.nan)), dict.fromkeys(SCORES, 1))
    table = all_scores_part(["L0H0", "L0H1", "L0H2", "L0H3"], {n: (each, mean[n]) for n, each in COLUMNS.items()})
    view = induction_view(found)
    for picture in (table.picture(), both_part(found).picture(), *(part.picture() for part in view.parts)):
        assert picture is None or json.dumps(picture.spec, allow_nan=False)  # a browser's JSON knows no NaN
    assert table.frame()["qk_trace"].isna().all()


def test_questions_that_the_window_cuts_are_counted():
    answers = Answers((), np.zeros((3, 2)), np.zeros((3, 2), bool), np.array([0, 7, 1]), False)
    assert cut_lines(answers) == [
        "**2** of them do not fit the model's window: their first tokens, of the examples, are left out"
    ]
    assert cut_lines(Answers((), answers.log_likelihood_nats, answers.greedy, np.zeros(3, int), False)) == []


@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 1), (2, 4), (4, 8), (30, 9), (64, 72)])
def test_the_example_of_a_mask_is_one(n_layers, n_heads):
    shape = ModelShape(n_layers, n_heads, n_heads, 8 * n_heads, 8, 64, 512, 256)
    mask = parse_edits(example_mask(shape), shape).prune
    assert not mask.is_full and mask.n_ffns_pruned == 1 and mask.n_heads_pruned >= 1
