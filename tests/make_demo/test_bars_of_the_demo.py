"""The report holds each figure against its bar, and takes each from the app's own functions."""

import contextlib
import io

import numpy as np
import pytest
from scipy.stats import rankdata

from engine.accuracy.evaluation import evaluation
from engine.heads.induction import induction
from engine.models.masks import parse_mask
from engine.progress import final
from engine.questions.rendering import TaskSpec, render_questions, select
from engine.statistics import paired
from engine.studies.removal import AccuracyWithout, line_of
from engine.texts.perplexity import Perplexity
from scripts.make_demo import bars, report
from scripts.make_demo.bars import Removed
from scripts.make_demo.measured import LEVELS, Measured, bits_a_byte
from tests.conftest import TEXT

pytestmark = pytest.mark.thorough

FAMILY = "demo_copy"


def reached(found):
    return [each.reached for each in found]


def line(full, pruned, n=200):
    """A Line of so many right of n; what is gained and what is lost are other questions."""
    before, after = (np.arange(n) < round(share * n) for share in (full, pruned))
    return AccuracyWithout(float(before.mean()), float(after.mean()), paired(before, after))


GOOD, FLAT = {"b": {0: 0.9, 1: 0.9, 5: 0.9}}, line(0.9, 0.9)
HEADS = np.zeros((2, 4))
HEADS[1, :3] = (0.5, 0.6, 0.7)
RANDOM = np.random.default_rng(0).random((4, 5))
PRUNED = {f"f{number}": {0: FLAT, 100: FLAT, 500: line(0.9, 0.86)} for number in range(16)}
UP = {0: FLAT, 100: line(0.5, 0.6), 500: line(0.5, 0.7)}


@pytest.mark.parametrize("found, expected", [
    (bars.of_accuracy(GOOD | {"a": {0: 0.3, 1: 0.5, 5: 0.9}}, {"a": 0.885, "b": 0.89}), [True, True, True]),
    (bars.of_accuracy(GOOD | {"a": {0: 0.3, 1: 0.3, 5: 0.44}}, {"a": 0.44, "b": 0.80}), [False, False, False]),
    (bars.of_heads(HEADS), [False]), (bars.of_heads(HEADS + 0.1), [True]),
    (bars.of_importance("x", RANDOM + 0.05 * RANDOM[::-1], RANDOM), [True, True]),
    (bars.of_importance("x", -RANDOM, RANDOM), [False, False]),
    (bars.of_importance("x", RANDOM, RANDOM, is_bar=False), [None, None]),
    (bars.of_pruning(PRUNED | {"up": UP}), [True, True]),
    (bars.of_pruning({"down": {0: FLAT, 100: FLAT, 500: line(0.9, 0.5)}})[:1], [False]),
    (bars.of_pruning({**dict(list(PRUNED.items())[2:]), "up": UP, "up2": UP, "up3": UP})[1:], [False]),
    (bars.of_text(1.60, 1.64, {"p": (1.60, 1.66)}), [True, False]),
    (bars.of_text(1.60, 1.66, {"p": (1.60, 1.64)}), [False, True]),
    (bars.of_passage((5.0, 2.0), (5.2, 3.5)), [True] * 4), (bars.of_passage((6.5, 5.0), (7.0, 5.5)), [False] * 4),
    (bars.of_passage((5.0, 2.0), None), [True] * 2),
])  # fmt: skip
def test_figures_are_held_against_their_bars(found, expected):
    assert reached(found) == expected
    assert all(str(each).startswith("MISSED ") == (each.reached is False) for each in found)


def test_removal_is_held_apart_by_what_a_family_needs():
    found = {
        "a": Removed("examples", line(0.9, 0.3), line(0.3, 0.3), (line(0.9, 0.9), line(0.9, 0.6))),
        "b": Removed("examples", line(0.9, 0.5), line(0.3, 0.3), (line(0.9, 0.95), line(0.9, 0.85))),
        "c": Removed("copying", line(1.0, 0.5), line(1.0, 0.2)),
        "d": Removed("nothing", line(1.0, 0.96), FLAT),
    }
    examples, drawn, none, copying, five, copying_five = bars.of_removal(found)
    assert examples.reached and "lose 50.0 points" in examples.text
    assert drawn.reached and "7.5 (under 10), -2.5 to 17.5 by draw, 2 draws" in drawn.text
    assert none.reached and "lose 0.0" in none.text and five.reached and "lose 4.0" in five.text
    assert copying.reached is None and "copy lose 80.0; all but those that need examples 40.0" in copying.text
    assert "copy lose 50.0; all but those that need examples 27.0" in copying_five.text
    found["d"] = Removed("nothing", line(1.0, 0.9), line(1.0, 0.94))
    assert reached(bars.of_removal(found))[2::2] == [False, False]


def test_importance_is_compared_by_its_best_heads_and_by_ranks():
    alike = RANDOM + 0.05 * np.random.default_rng(1).random((4, 5))
    share, agree = bars.of_importance("x", alike, RANDOM)
    a, b = (rankdata(each) for each in (alike, RANDOM))
    assert f"{np.corrcoef(a, b)[0, 1]:+.2f}" in agree.text
    best = [set(np.argsort(-each.ravel())[:6]) for each in (alike, RANDOM)]
    assert f"6 most important heads (30%) {len(best[0] & best[1])} are among" in share.text
    assert f"{sum(head >= 15 for head in best[0])} are of the last layer" in share.text


def test_layers_are_divided_by_their_own_norm():
    found = bars.by_layer_norm(np.array([[3.0, 4.0], [0.0, 0.0], [30.0, 40.0]]))
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0], [0.6, 0.8]])


def test_a_family_whose_accuracy_rises_significantly_counts_once():
    mean, rising = bars.of_pruning(PRUNED | {"up": UP})
    assert "10%: +0.6" in mean.text and "in 16 of 17" in rising.text and rising.text.endswith("up at 10/50%")
    assert not bars.rises(line(0.9, 0.5)) and not bars.rises(line(0.5, 0.51)), "a loss, and what chance would give"


def test_bits_a_byte_of_texts_together():
    texts = [
        Perplexity(np.full(n, nats), n, n, 1, n_bytes, 8, True) for n, nats, n_bytes in ((4, 2.0, 10), (6, 1.0, 30))
    ]
    assert bits_a_byte(texts) == pytest.approx((4 * 2.0 + 6 * 1.0) / np.log(2) / 40)


def test_figures_are_those_of_the_masks_measured_alone(session, folder_of):
    measured = Measured(session, str(folder_of("opt")), 4)
    target = measured.target()
    mask = parse_mask("L0H1 L2H3", target.shape)
    questions = select(render_questions(TaskSpec(FAMILY, 1), None, session.store), 4, "stratified")
    alone = [final(evaluation(target, questions, each).run(session)) for each in (measured.full, mask)]
    assert measured.change(FAMILY, 1, mask) == line_of(*alone)
    pruned = measured.pruned(FAMILY)
    assert list(pruned) == list(LEVELS) and pruned[0].points == 0 and pruned[0].change.n == 4
    np.testing.assert_array_equal(measured.importance([FAMILY], "heads-one-divisor")[:-1],
                                  measured.importance([FAMILY], "heads")[:-1])  # fmt: skip
    assert measured.induction().mean["prefix_matching"].shape == (3, 4)
    found = measured.removed(FAMILY, "examples", 2, 3)
    assert len(found.draws) == 2 and found.draws[0].change.n == 3 and found.at_none.change.n == 4
    assert measured.removed(FAMILY, "nothing", 2, 3).draws == ()


def test_text_is_read_with_bos_and_without_over_the_same_tokens(session, folder_of):
    measured = Measured(session, str(folder_of("opt")), 4)
    long = TEXT * (1 + 6000 // len(TEXT))
    assert measured.bits([long], True) > 0 and measured.bits([long], True) != measured.bits([long], False)
    found = measured.with_and_without_bos([long, TEXT[:40]])
    assert list(found) == ["the first window of each piece", "the next 3 windows"]
    assert all(bos > 0 and none > 0 and bos != none for bos, none in found.values())
    first, second = measured.copies(measured.full)
    assert first > 0 and second > 0 and measured.sample("The river").startswith("The river")


def test_a_part_runs_alone_and_says_what_it_found(session, folder_of, tmp_path):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        report.main(["--model", str(folder_of("opt")), "--part", "heads", "--part", "text", "--cache", str(tmp_path)])
    words = said.getvalue()
    scores = final(
        induction(session.target(Measured(session, str(folder_of("opt"))).target().spec), "olsson").run(session)
    ).mean
    n = int((scores["prefix_matching"] > 0.5).sum())
    assert (
        f"{n} heads with prefix matching over 0.5" in words and "give --corpus" in words and "## removal" not in words
    )
    with pytest.raises(SystemExit):
        report.main(["--model", str(tmp_path / "nowhere"), "--part", "heads", "--cache", str(tmp_path)])
