"""Two models side by side: one control in the sidebar for all screens, paired numbers; nothing while it is empty."""

import ast
import json
import subprocess
import sys

import pytest
from scipy.stats import binomtest
from streamlit.util import calc_hash

from engine.accuracy.evaluation import evaluate
from engine.importance.rankings_of import compute_orders
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.progress import final
from pages.ui.prune import beside
from pages.ui.shared import runtime
from tests.conftest import REPOSITORY, make_tiny_opt
from tests.engine.fixtures import family_folder
from tests.pages.conftest import (
    WAIT_S,
    N,
    button,
    charts_of,
    experiment_of,
    figure,
    frames_of,
    same_on_the_command_line,
    settled,
    slide,
)

RANDOM = {"prune_ranking": "random", "prune_heads": "50"}


@pytest.fixture
def twin(tmp_path):
    """The tiny model with other weights."""
    (tmp_path / "twin").mkdir()
    return make_tiny_opt(tmp_path / "twin", seed=1)


@pytest.fixture
def unequal(tmp_path, tiny_opt):
    """A model of another family, of three layers instead of two."""
    return family_folder("llama", tiny_opt, tmp_path / "llama")


def said(at):
    return " ".join(each.value for each in [*at.main.markdown, *at.main.caption])


def answers_of(at, spec, typed=""):
    """Plainly measured: what a model answers at the levels of the page."""
    x, lab = experiment_of(at), runtime.lab()
    subject = lab.subject(spec)
    other = beside.look(x, subject).x
    mask = other.pruning.mask(final(compute_orders(lab, subject, other.pruning)))
    return final(evaluate(lab, subject, x.questions, mask)).correct


def test_nothing_is_measured_drawn_or_imported_while_no_second_model_is_chosen(open_app):
    at = open_app(**RANDOM)
    assert at.sidebar.selectbox(key="against").value is None
    assert runtime.jobs().snapshot(beside.SLOT) is None and runtime.lab().models.pair == frozenset()
    [curve] = charts_of(at)
    assert "Model" not in json.dumps(curve["layer"]), "no second line, and no legend"
    assert "--against" not in at.code[0].value


def test_the_second_model_stands_beside_the_first_with_paired_numbers(open_app, twin, capsys):
    at = open_app(against=str(twin), prune_mask="L1H0", **RANDOM)
    first, second = (answers_of(at, LoadSpec(str(each), "fp32")) for each in (at.selectbox(key="model").value, twin))
    assert figure(at)[0] == f"{100 * first.mean():.1f} %", "the large figure stays the first model's"
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    assert f"**twin in fp32: {100 * second.mean():.1f} %**" in said(at)
    assert f"answers **{only_first}**, only twin in fp32 **{only_second}**" in said(at)
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
    assert runtime.lab().models.holds(LoadSpec(str(twin), "fp32")) and len(runtime.lab().models.pair) == 2


def test_the_questions_say_which_of_the_two_answers_them(open_app, twin):
    at = open_app(against=str(twin), prune_questions="true", prune_show="Only the second", **RANDOM)
    first, second = (answers_of(at, LoadSpec(str(each), "fp32")) for each in (at.selectbox(key="model").value, twin))
    wanted = [place + 1 for place in range(N) if second[place] and not first[place]]
    [listed] = [each.value for each in at.main.dataframe if "second" in each.value]
    assert list(listed["number"]) == wanted
    assert f"{len(wanted)} that only it answers" in said(at)


def test_another_precision_and_one_click_lets_go(open_app):
    at = open_app(against="bf16", **RANDOM)
    assert "in bf16: " in said(at) and "--against bf16" in at.code[0].value
    at.sidebar.selectbox(key="against").set_value(None)
    settled(at)
    assert "in bf16: " not in said(at) and runtime.lab().models.pair == frozenset()
    assert "Model" not in json.dumps(charts_of(at)[0]["layer"])


def test_models_of_other_shapes_are_compared_at_the_same_levels_without_the_typed_edits(open_app, unequal):
    at = open_app(against=str(unequal), prune_mask="L1H0 F1", **RANDOM)
    assert "nothing of it is pruned in llama in fp32, whose parts are others" in said(at).replace("\\", "")
    second = answers_of(at, LoadSpec(str(unequal), "fp32"))
    assert f"**llama in fp32: {100 * second.mean():.1f} %**" in said(at)
    shown = runtime.jobs().snapshot(beside.SLOT)
    assert shown.state == "done" and len(shown.value.full) == len(shown.value.pruned) == N


def test_the_curve_of_the_second_is_a_line_of_its_own(open_app, twin):
    at = open_app(against=str(twin), **RANDOM)
    button(at, "Measure the curve of twin in fp32").click()
    settled(at)
    points = frames_of(at)[0]["points"]
    mine = points[points["series"] == "second"]
    assert len(mine) == 11 and set(mine["model"]) == {"twin in fp32"}
    full = final(evaluate(runtime.lab(), subject := runtime.lab().subject(LoadSpec(str(twin), "fp32")),
                          experiment_of(at).questions, Mask.full(subject.shape)))  # fmt: skip
    assert mine["acc"].iloc[0] == pytest.approx(full.correct.mean())
    assert "Measure the curve of twin in fp32" not in [each.label for each in at.button]


def test_a_moving_slider_waits_for_nothing_of_the_second(open_app, twin):
    at = open_app(against=str(twin), **RANDOM)
    slide(at, "prune_heads", 25, moving=True).run()
    assert "twin in fp32: follows when you let go" in said(at) and runtime.jobs().snapshot(beside.SLOT) is None
    slide(at, "prune_heads", 25)
    settled(at)
    second = answers_of(at, LoadSpec(str(twin), "fp32"))
    assert f"**twin in fp32: {100 * second.mean():.1f} %**" in said(at)


@pytest.mark.parametrize("text", ["/no/such/folder", "fp32", "~nobody/x", "a\0b", "@step1", "![x](http://x.invalid)"])
def test_a_bad_second_model_is_one_line_and_the_first_goes_on(open_app, text):
    at = open_app(against=text, **RANDOM)
    runtime.jobs().join("accuracy", WAIT_S)
    assert figure(at)[0].endswith("%")
    lines = [each.value for each in at.error]
    assert len(lines) == 1 and "unexpected" not in lines[0] and "](http" not in lines[0], lines


def test_what_is_compared_is_the_same_on_all_screens_and_in_old_addresses_of_passage(open_app, twin):
    at = open_app(run=False, passage_a="another model", passage_a_model=str(twin), **RANDOM)
    at.wanted_page_hash = calc_hash("passage")
    at.run()
    assert at.sidebar.selectbox(key="against").value == str(twin)
    assert "passage_a" not in at.query_params and "passage_a_model" not in at.query_params
    assert "twin in fp32" in at.text_input(key="passage_a_mask").label
    at.wanted_page_hash = ""
    assert "**twin in fp32: " in said(settled(at))
    at = open_app(run=False, against=str(twin))
    at.wanted_page_hash = calc_hash("attention")  # which shows one model
    field = at.run().sidebar.selectbox(key="against")
    assert field.disabled and field.value == str(twin)


def test_the_python_program_of_the_page_prints_the_same_numbers(open_app, twin, tmp_path):
    at = open_app(against=str(twin), **RANDOM)
    [program] = [each.value for each in at.code if "compared" in each.value]
    runtime.jobs().close(WAIT_S)
    runtime.store().close()
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    row = ast.literal_eval(told.stdout.replace("np.float64", ""))
    assert row["n"] == N and f"answers **{row['only_first']}**" in said(at)
    assert f"**twin in fp32: {100 * row['acc_second']:.1f} %**" in said(at)
