"""Two models side by side: one control in the bar for all screens, paired numbers; nothing while it is empty."""

import json
from dataclasses import replace

import pytest
from scipy.stats import binomtest

from engine.accuracy.evaluation import evaluation
from engine.importance.layers import block_influence
from engine.importance.orders import orders_of, pruning_of_second
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.progress import final
from engine.questions.rendering import render_questions, select
from pages.ui.page import runtime
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.prune.experiment import SECOND
from tests.conftest import make_tiny_opt, some_of
from tests.engine.fixtures import family_folder
from tests.pages.conftest import (
    WAIT_S,
    N,
    charts_of,
    choose_story,
    command_of,
    experiment_of,
    figure,
    frames_of,
    go_to,
    printed_by_the_program,
    said,
    same_on_the_command_line,
    second_figure,
    settled,
    slide,
)

RANDOM = {"order": "random", "heads": "50"}


@pytest.fixture
def twin(tmp_path):
    """The tiny model with other weights."""
    (tmp_path / "twin").mkdir()
    return make_tiny_opt(tmp_path / "twin", seed=1)


@pytest.fixture
def unequal(tmp_path, tiny_opt):
    """A model of another family, of three layers instead of two."""
    return family_folder("llama", tiny_opt, tmp_path / "llama")


def answers_of(at, spec, typed=""):
    """Plainly measured: what a model answers at the levels of the page."""
    x, session = experiment_of(at), runtime.session()
    target = session.target(spec)
    pruning = pruning_of_second(x.pruning, x.shape, target.shape)
    mask = pruning.mask(final(orders_of(target, pruning).run(session)))
    return final(evaluation(target, x.questions, mask).run(session)).correct


def test_the_second_model_stands_beside_the_first_with_paired_numbers(open_app, twin, capsys):
    listed = {"prune_questions": "true", "prune_show": "Only the second"}
    at = open_app(against=str(twin), mask="L1H0", **RANDOM, **listed)
    first, second = (answers_of(at, LoadSpec(str(each), "fp32")) for each in (at.selectbox(key="model").value, twin))
    assert figure(at)[0] == f"{100 * first.mean():.1f}%", "the large figure stays the first model's"
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    assert second_figure(at) == ("twin in fp32", f"{100 * second.mean():.1f}%")
    assert f"right alone on {only_second}, wrong alone on {only_first}, of {N} questions" in said(at)
    [curve] = charts_of(at)
    drawn = frames_of(at)[0]["now"]
    assert list(drawn["model"]) == [LoadSpec(at.selectbox(key="model").value, "fp32").in_words, "twin in fp32"]
    assert list(drawn["acc"]) == pytest.approx([first.mean(), second.mean()])
    result = same_on_the_command_line(at, capsys)
    assert result["cached"] and result["against"]["cached"], "the page and the command line share their results"
    assert result["against"]["acc"] == pytest.approx(second.mean()) and "L1H0" in result["against"]["mask"]
    assert result["against"]["difference"] == pytest.approx(second.mean() - first.mean())
    exact = binomtest(only_second, max(1, only_first + only_second)).pvalue if only_first + only_second else 1.0
    assert result["against"]["p_mcnemar"] == pytest.approx(exact)
    assert runtime.session().models.holds(LoadSpec(str(twin), "fp32")) and len(runtime.session().models._shown()) == 2
    wanted = [place + 1 for place in range(N) if second[place] and not first[place]]
    [table] = [each.value for each in at.main.dataframe if "second" in each.value]
    assert list(table["number"]) == wanted
    printed = printed_by_the_program(at).splitlines()
    assert f", {N} questions; " in printed[0] and f"wrong alone on {only_first}" in printed[0]
    assert any(f" {second.mean():.1%} " in line for line in printed[1:])


def test_nothing_of_a_second_model_is_there_before_it_is_chosen_or_after_one_click_lets_go(open_app):
    def is_alone(at):
        assert at.selectbox(key="against").value is None and second_figure(at) is None
        assert len(runtime.session().models._shown()) == 1 and "--against" not in command_of(at)
        [curve] = charts_of(at)
        return "Model" not in json.dumps(curve["layer"])  # no second line, and no legend

    assert is_alone(open_app(**RANDOM)) and runtime.jobs().status(SECOND) is None
    at = open_app(against="bf16", **RANDOM)
    assert second_figure(at)[0].endswith(" in bf16") and "--against bf16" in command_of(at)
    at.selectbox(key="against").set_value(None)
    assert is_alone(settled(at))


def test_models_of_other_shapes_are_compared_at_the_same_levels_without_the_typed_edits(open_app, unequal):
    at = open_app(against=str(unequal), mask="L1H0 F1", **RANDOM)
    assert "nothing of it is pruned in llama in fp32, whose parts are others" in said(at).replace("\\", "")
    second = answers_of(at, LoadSpec(str(unequal), "fp32"))
    assert second_figure(at) == ("llama in fp32", f"{100 * second.mean():.1f}%")
    shown = runtime.jobs().status(SECOND)
    assert shown.state == "done" and len(shown.value.full) == len(shown.value.pruned) == N


def test_the_curve_of_the_second_is_a_line_of_its_own_and_a_moving_slider_waits_for_nothing_of_it(open_app, twin):
    at = choose_story(open_app(against=str(twin), **RANDOM), "far")
    points = frames_of(at)[0]["points"]
    mine = points[points["series"] == "second"]
    assert len(mine) == 11 and set(mine["model"]) == {"twin in fp32"}
    full = final(evaluation(target := runtime.session().target(LoadSpec(str(twin), "fp32")),
                          experiment_of(at).questions, Mask.full(target.shape)).run(runtime.session()))  # fmt: skip
    assert mine["acc"].iloc[0] == pytest.approx(full.correct.mean())
    slide(at, "heads", 25, moving=True).run()
    assert "twin in fp32: follows when you release the slider" in said(at) and runtime.jobs().status(SECOND) is None
    slide(at, "heads", 25)
    settled(at)
    second = answers_of(at, LoadSpec(str(twin), "fp32"))
    assert second_figure(at) == ("twin in fp32", f"{100 * second.mean():.1f}%")


BAD = ["/no/such/folder", "![x](http://x.invalid)", "a\0b", "fp32", "~nobody/x", "@step1"]


@pytest.mark.thorough
@pytest.mark.parametrize("text", some_of(BAD, 3))
def test_a_bad_second_model_is_one_line_and_the_first_goes_on(open_app, text):
    at = open_app(against=text, **RANDOM)
    runtime.jobs().join("accuracy", WAIT_S)
    assert figure(at)[0].endswith("%")
    lines = [each.value for each in at.error]
    assert len(lines) == 1 and "unexpected" not in lines[0] and "](http" not in lines[0], lines


def test_what_is_compared_is_the_same_on_all_screens(open_app, twin):
    at = settled(open_app("text", run=False, against=str(twin), **RANDOM, mask="L0H1"))
    assert at.selectbox(key="against").value == str(twin)
    assert "A: twin in fp32" in said(at)
    assert second_figure(go_to(at, "prune"))[0] == "twin in fp32"


def test_the_second_model_drops_its_own_layers(open_app, unequal, capsys):
    at = open_app(against=str(unequal), order="random", layers="50")
    session, x = runtime.session(), experiment_of(at)
    other = session.target(LoadSpec(str(unequal), "fp32"))
    train = select(
        render_questions(replace(x.task, split="train"), None, session.store), RANKING_QUESTIONS, "stratified"
    )
    influence = block_influence(other, train).stored(session)
    result = same_on_the_command_line(at, capsys)["against"]
    assert result["cached"] and result["layers_dropped"] == [int(influence.argmin())], "half of three, rounded down"
    assert second_figure(at) == ("llama in fp32", f"{100 * result['acc']:.1f}%")
    assert "1 of 3 FFNs pruned (1 layer dropped)" in said(at)
