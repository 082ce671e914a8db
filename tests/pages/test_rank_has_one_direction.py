"""Rank 1 is the most important head on every screen, whatever order prunes, and axes and tables say so."""

import numpy as np
import pytest

from engine.importance.scores import Scores
from engine.models.masks import Mask
from engine.questions.rendering import TaskSpec
from engine.shapes import ModelShape
from engine.studies.portrait import Portrait
from engine.views.correlation import Rankings, ranks_part
from pages.ui.controls.coloring import Coloring
from pages.ui.prune.tables import component_frame
from tests.pages.conftest import components

SCORES = np.array([[0.1, 0.9], [0.4, 0.2]])
RANKS = [4, 1, 2, 3]
TASK, FOUND, SHAPE = TaskSpec("piqa", 0), Scores("heads", 4, SCORES), ModelShape(2, 2, 4, 8, 2, 16, 64, 32)


def heads_on_prune():
    coloring = Coloring(("Importance", ""), FOUND, None, None)  # pyright: ignore[reportArgumentType]
    return component_frame(SHAPE, coloring, Mask.full(SHAPE))[:4]


def test_every_screen_gives_the_same_ranks():
    in_report = [Portrait(SHAPE, divmod(at, 2), importance={("heads", TASK): FOUND}).places[0].rank for at in range(4)]
    on_heads = ranks_part(Rankings({"a": SCORES, "b": SCORES}, {}), "a", "b", "head").frame()
    assert on_heads["rank_a"].tolist() == RANKS == in_report
    assert heads_on_prune()["rank"].tolist() == RANKS and SCORES.ravel()[RANKS.index(1)] == SCORES.max()


@pytest.mark.parametrize("ranking, first", [("importance", {5, 6, 7, 8}), ("reversed", {1, 2, 3, 4})])
def test_what_prune_removes_by_importance_has_the_last_ranks(ranking, first, open_app):
    at = open_app(order=ranking, limit="16", heads="50")
    [heads] = [data for data in components(at) if "outlined" in data]
    ranks = {rank: gone for name, rank, gone in zip(heads["name"], heads["rank"], heads["pruned"], strict=True)
             if name.startswith("L")}  # fmt: skip
    assert {rank for rank, is_pruned in ranks.items() if is_pruned} == first
