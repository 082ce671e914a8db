"""The map, the card and the rankings of heads, as they are presented."""

import math

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from engine.heads.in_text import HeadInText
from engine.heads.induction import InductionScores, retained
from engine.importance.rankings import agreement, order, top_overlap
from engine.importance.scores import Scores
from engine.models.masks import parse_mask
from engine.questions.rendering import TaskSpec
from engine.requests.heads import told
from engine.shapes import ModelShape
from engine.statistics import Paired, paired
from engine.studies.ablations import Ablations
from engine.studies.portrait import Portrait
from engine.studies.removal import AccuracyWithout, Removal
from engine.views.accuracy import ablation_view
from engine.views.correlation import Rankings, pair_in_words, rankings_in_words, rankings_part, ranks_part
from engine.views.heads import COPY, FOLLOWED, PREVIOUS, describe_head, head_view, looks_part
from engine.views.importance import MapMarks, map_part
from engine.views.induction import LEVELS, RANDOM, capacity_view
from engine.views.view import Column, plain_text

SHAPE = ModelShape(2, 4, 4, 32, 8, 64, 512, 256)
LOST = Column("Points lost without it", ".0f")
RNG = np.random.default_rng(0)
SCORES = {name: RNG.random((6, 8)) for name in ("a", "b", "c")}


def test_a_map_has_the_ffns_as_a_column_and_numbers_where_a_loss_is_clear():
    flips = np.zeros((2, 2, 4), int)
    flips[1, 0, 2] = 30  # of 40 questions
    heads = Scores("heads-oracle", 40, flips[1] / 40, np.zeros((2, 4)), flips=flips)
    ffns = Scores("ffns", 40, np.array([0.0, 0.025]), np.zeros(2), flips=np.array([[0, 0], [0, 1]]))
    marks = MapMarks("L0H2", parse_mask("L1H3 F1", SHAPE), np.eye(2, 4, dtype=bool))
    part = map_part("Cost", (LOST, LOST), (heads, ffns), marks, "head")
    assert [row["name"] for row in part.rows] == [*(f"L0H{at}" for at in range(4)), "F0",
                                                  *(f"L1H{at}" for at in range(4)), "F1"]  # fmt: skip
    by_name = {row["name"]: row for row in part.rows}
    assert by_name["L0H2"]["score"] == 75 and by_name["L0H2"]["written"] == "75" and by_name["L0H2"]["selected"]
    assert not any(row["written"] for row in part.rows if row["name"] != "L0H2")
    assert {name for name, row in by_name.items() if row["pruned"]} == {"L1H3", "F1"}
    assert {name for name, row in by_name.items() if row["outlined"]} == {"L0H0", "L1H1"}
    assert by_name["L0H2"]["shade"] == by_name["F1"]["shade"] == 1, "each by its own largest score"
    drawn = part.picture()
    columns = [row["column"] for row in drawn.datasets["rows"]]
    assert columns == [*"0123", "FFN"] * 2 and drawn.template["layer"][0]["params"][0]["name"] == "head"


def test_a_rank_by_accuracy_lost_is_in_points_and_other_scores_are_as_they_are():
    flips = np.zeros((2, 2, 4), int)
    flips[:, 1, 2] = 3, 1  # of 64 questions, gained and lost without it
    lost, other = (flips[1] - flips[0]) / 64, np.arange(8.0).reshape(2, 4)
    scores = Scores("heads-oracle", 64, lost, np.zeros((2, 4)), flips=flips), Scores("heads", 64, other)
    portrait = Portrait(SHAPE, (1, 2), importance={(each.what, TaskSpec("demo_x")): each for each in scores})
    fields = told(portrait)
    [part] = [part for part in head_view("L1H2", fields, portrait, "").parts if part.title.startswith("Rank among 8")]
    assert [(row["by"], row["score"], row["rank"]) for row in part.rows] == [
        ("heads-oracle, points lost", -3.125, 8), ("heads", 6.0, 2)
    ]  # fmt: skip
    assert [each["score"] for each in fields["importance"]] == [-0.03125, 6.0], "--json has shares, as its accuracies"


def seen(pattern, tokens):
    n = len(tokens)
    zeros = np.zeros(n)
    return HeadInText(
        text="a" * n, token_ids=np.array(tokens), ends=np.arange(1, n + 1), pattern=pattern, to_first=pattern[:, 0],
        to_previous=np.r_[0, pattern.diagonal(-1)], raised_next=zeros, raised_ids=np.zeros((n, 1), int),
        raised_nats=np.zeros((n, 1)), strings={0: "x"},
    )  # fmt: skip


@pytest.mark.parametrize("place, back", [(PREVIOUS, 1), (COPY, 4), (FOLLOWED, 3)])
def test_the_card_says_where_a_head_looks(place, back):
    tokens = [9, 1, 2, 3, 4, 1, 2, 3, 4]
    pattern = np.zeros((9, 9))
    pattern[:, 0] = 0.2
    later = np.arange(1 if place == PREVIOUS else 5, 9)
    pattern[later, later - back] = 0.7
    words, part = looks_part(seen(pattern, tokens), "a text")
    assert place in words and "70%" in words or place == PREVIOUS
    assert {row["destination"] - row["source"] for row in part.rows if row["marked"]} == {back}
    nothing, part = looks_part(seen(np.eye(9) * 0.3, tokens), "a text")
    assert "no place that repeats" in nothing and not any(row["marked"] for row in part.rows)


def test_the_card_says_only_what_is_known():
    task, other = TaskSpec("demo_x", 5), TaskSpec("demo_y", 5)
    right = np.ones(64, bool)
    lost, none = paired(right, np.arange(64) >= 16), paired(right, right)
    assert describe_head("L1H1", (1, 1), None, task, {}, {}) == "**L1H1**"
    said = describe_head("L1H1", (1, 1), None, task, {task: none, other: lost}, {task: False, other: True})
    assert plain_text(said) == "L1H1 alone it costs nothing clear on demo_x, 5 shots; also 25 points on demo_y."


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        (
            {"prefix_matching": 0.9, "copying": -0.2},
            0.0,
            "is an induction head and copies (prefix matching 0.90, rank ",
        ),
        ({"prefix_matching": 0.9, "copying": -0.8}, 0.02, "is an induction head and copies hardly more than chance (p"),
        ({"prefix_matching": 0.9, "copying": -0.9}, 0.0, "matches prefixes but does not copy (prefix matching 0.90, r"),
        ({"previous_token": 0.6}, 0.0, "is a previous-token head (0.60, rank 1 of 12)"),
        ({}, 0.0, "is not an induction head (prefix matching 0.05, rank 12 of 12)"),
    ],
)
def test_what_a_head_is_is_said_honestly(values, error, words):
    names = ("prefix_matching", "copying", "previous_token", "duplicate_token")
    mean = {name: np.full((3, 4), 0.1) for name in names}
    for name, value in ({"prefix_matching": 0.05} | values).items():
        mean[name][1, 2] = value
    found = InductionScores(mean, {name: np.full((3, 4), error) for name in names}, dict.fromkeys(names, 1))
    assert plain_text(describe_head("L1H2", (1, 2), found, None, {}, {})).startswith(f"L1H2 {words}")


def test_rankings_agree_as_scipy_says():
    of = Rankings(SCORES, {})
    for a, b in (("a", "b"), ("c", "a")):
        assert of.value(a, b, "srcc") == pytest.approx(spearmanr(SCORES[a].ravel(), SCORES[b].ravel()).statistic)
        layers = zip(SCORES[a], SCORES[b], strict=True)
        assert of.value(a, b, "within") == pytest.approx(np.mean([spearmanr(*each).statistic for each in layers]))
        assert of.value(a, b, "overlap") == top_overlap(SCORES[a], SCORES[b])
    assert math.isnan(of.value("a", "missing", "srcc")) and math.isnan(of.value("a", "a", "srcc"))
    tied = Rankings({"a": np.zeros((6, 8)), "b": SCORES["b"]}, {})
    assert math.isnan(tied.value("a", "b", "overlap")) and "undefined" in pair_in_words(tied, "a", "b", "head")
    rows = {(row["a"], row["b"]): row for row in rankings_part(of, ["a", "b", "z"], "srcc", ("a", "b"), "pair").rows}
    assert rows["a", "b"]["value"] == of.value("a", "b", "srcc") and rows["a", "b"]["selected"]
    assert rows["a", "z"]["value"] is None and rows["a", "a"]["value"] is None, "not measured: empty"
    ranks = ranks_part(of, "a", "c", "head").rows
    assert [row["rank_a"] for row in ranks] == rankdata(-SCORES["a"].ravel()).tolist() and ranks[9]["name"] == "L1H1"


def test_the_finding_holds_for_what_is_drawn():
    of = Rankings(SCORES, {("a", "b"): (20.0, True), ("b", "a"): (1.0, False)}, 500)
    pairs = {(a, b): of.value(a, b, "srcc") for a, b in (("a", "b"), ("a", "c"), ("b", "c"))}
    said = plain_text(rankings_in_words(of, "srcc", "head"))
    assert f"rank correlation {min(pairs.values()):.2f} to {max(pairs.values()):.2f} over 3 pairs" in said
    assert "with 50% of heads pruned by the order of b, a loses 20 points" in said
    assert "a loses 20 points and b loses nothing clear" in pair_in_words(of, "a", "b", "head")
    layers = np.arange(6)[:, None] + 0.1 * RNG.random((6, 8))
    others = np.arange(6)[:, None] - 0.1 * (layers - np.arange(6)[:, None])
    assert "The same layers matter, but other heads in them" in pair_in_words(
        Rankings({"a": layers, "b": others}, {}), "a", "b", "head"
    )


def test_what_pruning_keeps_is_what_is_retained():
    mean = {"prefix_matching": RNG.random((6, 8)), "copying": RNG.random((6, 8))}
    found = InductionScores(mean, {}, {"copying": 10, "prefix_matching": 10})
    view = capacity_view(found, SCORES, "b")
    rows = view.parts[0].rows
    assert [*dict.fromkeys(row["line"] for row in rows)] == ["b", "a", "c", RANDOM]
    whole = retained(mean["prefix_matching"], order(SCORES["b"]))
    assert [row["left"] for row in rows if row["line"] == "b"] == [whole[int(48 * level + 1e-9)] for level in LEVELS]
    assert f"{100 * whole[24]:.0f}% of prefix matching" in view.finding


def test_a_loss_and_a_gain_keep_their_sign_on_a_map():
    flips = np.zeros((2, 2, 4), int)
    flips[0, 1, 1], flips[1, 0, 0] = 32, 1  # of 64 questions: gained without L1H1, lost without L0H0
    heads = Scores("heads-oracle", 64, (flips[1] - flips[0]) / 64, np.zeros((2, 4)), flips=flips)
    part = map_part("Cost", (LOST, LOST), (heads, None), MapMarks("L0H0", parse_mask("", SHAPE)), "head")
    by_name = {row["name"]: row for row in part.rows}
    assert [by_name[name]["score"] for name in ("L1H1", "L0H0", "L0H1")] == [-50, 1.5625, 0]
    assert by_name["L1H1"]["shade"] == -1 and by_name["L0H0"]["shade"] == pytest.approx(math.sqrt(1.5625 / 50))
    assert "no clear loss" in by_name["L0H0"]["text"] and not by_name["L0H0"]["is_clear"]


def test_heads_alone_are_next_to_those_together_and_as_many_at_random():
    lost, at_random = (AccuracyWithout(0.9, at, Paired(100, 0, n, p)) for at, n, p in ((0.3, 60, 0), (0.88, 2, 1)))
    joint = Removal((1, 5), removed=lost, draws=(at_random,))
    alone = {0: Paired(64, 0, 32, 0.0), 6: Paired(64, 0, 16, 0.0), 1: Paired(64, 0, 2, 0.5), 5: Paired(64, 0, 0, 1.0)}
    found = Ablations(SHAPE, 64, (0, 6), joint, alone, frozenset({0, 6}))
    rows = ablation_view(found, "task0", "").parts[0].rows
    names = ["L0H0", "L1H2", "L0H1, induction head", "L1H1, induction head"]
    assert [row["row"] for row in rows[:4]] == names and "2 induction heads" in rows[4]["row"] and len(rows) == 6
    assert [row["lost"] for row in rows] == pytest.approx([50, 25, 100 * 2 / 64, 0, 60, 2])
    assert [row["is_clear"] for row in rows[:5]] == [True, True, False, False, True]
    low, high = (100 * end for end in Paired(64, 0, 32, 0.0).interval)
    assert [rows[0]["low"], rows[0]["high"]] == pytest.approx([-high, -low])


def test_ties_and_what_is_undefined_have_no_number():
    tied = np.array([[3.0, 2, 2, 1], [0, 0, 0, 0]])
    of = Rankings({"tied": tied, "rising": np.arange(8.0).reshape(2, 4), "flat": np.ones((2, 4))}, {})
    assert math.isnan(of.value("tied", "rising", "overlap")), "two tie across the end of the top 30%"
    assert math.isnan(of.value("flat", "rising", "within"))
    assert "in each top 30%" not in pair_in_words(of, "tied", "rising", "head")
    ranks = ranks_part(of, "tied", "rising", "head").rows
    assert [row["rank_a"] for row in ranks] == [1, 2.5, 2.5, 4, 6.5, 6.5, 6.5, 6.5], "ties share their mean rank"
    ffns = Rankings({"a": np.arange(3.0), "b": np.arange(3.0)}, {})
    assert [row["name"] for row in ranks_part(ffns, "a", "b", "FFN").rows] == ["F0", "F1", "F2"]


def test_two_rankings_have_the_interval_of_their_correlation():
    of = Rankings(SCORES, {})
    found = agreement(SCORES, permutations=0)
    assert of.interval("a", "c") == (found.low[0, 2], found.high[0, 2])
    low, high = (f"{each:.2f}".replace("-", "−") for each in of.interval("a", "c"))
    assert f"(95% {low} to {high})" in pair_in_words(of, "a", "c", "head")


@pytest.mark.parametrize(
    "srcc, within, says",
    [(0.9, 0.8, "Largely the same"), (0.5, 0.9, "Partly"), (0.1, 0.1, "Other heads"), (0.9, 0.1, "The same layers")],
)
def test_rankings_are_called_alike_by_the_lower_of_two_coefficients(srcc, within, says, monkeypatch):
    values = {"srcc": srcc, "within": within, "overlap": 0.5}
    monkeypatch.setattr(Rankings, "value", lambda self, a, b, measure: values.get(measure, math.nan))
    assert pair_in_words(Rankings(SCORES, {}), "a", "b", "head").startswith(f"**{says}")
