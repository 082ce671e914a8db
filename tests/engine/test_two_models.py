"""Two models are compared on the same questions, with the numbers of a plain computation."""

import numpy as np
import pytest
from scipy.stats import binomtest

from engine.accuracy.evaluation import Answers, compared
from engine.errors import HeadroomError, UsageError
from engine.importance.orders import Pruning, Ranking, pruning_of_second
from engine.models.loading import LoadSpec
from engine.models.masks import parse_edits
from engine.questions.rendering import Question, TaskSpec
from engine.shapes import ModelShape
from tests.engine.fixtures import refused_by

N = 120


def answers(right, names="q"):
    """Answers to questions of two choices, the first of which is the right one."""
    asked = tuple(Question(i, (names, names), (" a", " b"), (0,), (2, 2), f"{names}{i}") for i in range(len(right)))
    scores = np.where(np.array(right)[:, None], [0.0, -1.0], [-1.0, 0.0])
    return Answers(asked, scores, np.zeros((len(right), 2), bool), np.zeros(len(right), np.int32), False)


@pytest.mark.parametrize("seed, share", [(0, 0.6), (1, 0.9), (2, 0.75)])
def test_the_paired_numbers_are_those_of_a_plain_computation(seed, share):
    generator = np.random.default_rng(seed)
    first = generator.random(N) < 0.7
    second = np.where(generator.random(N) < 0.8, first, generator.random(N) < share)
    found = compared(answers(first), answers(second))
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    assert (found.change.lost, found.change.gained) == (only_first, only_second)
    assert found.first.acc == pytest.approx(first.mean()) and found.second.acc == pytest.approx(second.mean())
    assert found.change.difference == pytest.approx(second.mean() - first.mean())
    exact = binomtest(only_second, only_first + only_second, 0.5).pvalue
    assert found.change.p_mcnemar == pytest.approx(exact, rel=1e-9)
    drawn = generator.integers(0, N, (4000, N))
    low, high = np.quantile((second[drawn].astype(float) - first[drawn]).mean(1), [0.025, 0.975])
    if found.change.is_significant:  # else the interval is widened to 0, as the exact test is the stricter one
        assert found.change.interval == pytest.approx((low, high), abs=0.02)
    else:
        assert found.change.interval[0] <= min(low + 0.02, 0) and found.change.interval[1] >= max(high - 0.02, 0)


def test_questions_that_only_one_has_reached_do_not_count_and_others_are_refused():
    found = compared(answers([True] * 10), answers([False] * 6))
    assert found.change.n == found.first.n == found.second.n == 6 and found.change.lost == 6
    assert np.isnan(compared(answers([]), answers([True])).change.difference)
    refused_by(HeadroomError, "different questions", lambda: compared(answers([True]), answers([True], "other")))


def shape(n_layers, n_heads):
    return ModelShape(n_layers, n_heads, n_heads, 32, 8, 64, 512, 256)


def test_typed_edits_apply_where_the_parts_are_as_many():
    first = shape(3, 4)
    pruning = Pruning(TaskSpec("demo_copy"), Ranking("random"), 400, 0, parse_edits("L2H3 F1", first))
    assert pruning_of_second(pruning, first, shape(3, 4)) == pruning
    other = pruning_of_second(pruning, first, shape(2, 4))
    assert other.typed.text() == "" and (other.heads_permille, other.ranking) == (400, pruning.ranking)


@pytest.mark.parametrize(
    "first, text, expected",
    [
        (LoadSpec("demo", "int8"), "fp32", LoadSpec("demo", "fp32")),
        (LoadSpec("org/model@step1", "bf16"), " @step512 ", LoadSpec("org/model@step512", "bf16")),
        (LoadSpec("org/model", "bf16"), "@a/b in int8", LoadSpec("org/model@a/b", "int8")),
        (LoadSpec("demo", "int8"), "org/model@step2", LoadSpec("org/model@step2", "int8")),
        (LoadSpec("demo", "int8", 0.0), "org/model in fp32", LoadSpec("org/model", "fp32", 0.0)),
        (LoadSpec("demo", "int8"), "/models/in fp32/opt", LoadSpec("/models/in fp32/opt", "int8")),
    ],
)
def test_what_a_model_is_compared_with_is_typed_in_one_way(first, text, expected):
    found = first.compared_with(text)
    assert found == expected and first.compared_with(found.typed_beside(first)) == expected


def test_a_model_is_not_compared_with_itself():
    for text in ("int8", "demo", "demo in int8"):
        refused_by(UsageError, "is the model itself", lambda text=text: LoadSpec("demo", "int8").compared_with(text))
