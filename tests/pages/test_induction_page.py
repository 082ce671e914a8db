"""The Induction screen in one process: every score drawn, one selection everywhere, and on to the Prune screen."""

from functools import partial

import numpy as np
import pytest

from engine.accuracy.evaluation import accuracy, evaluation
from engine.heads.induction import INDUCTION_FROM, SCORES, InductionScores
from engine.importance.rankings import random_order
from engine.models.loading import LoadSpec
from engine.models.masks import parse_mask
from engine.questions.requests import TaskSpec, get_requests, select
from engine.shapes import ModelShape
from engine.studies.removal import HeadSet
from engine.views.pictures import to_svg
from pages.ui.controls.first_views import first_task
from pages.ui.figures import head_sets
from pages.ui.figures.head_sets import RANDOM, STRONGEST
from pages.ui.induction import ablation, charts, overlap, selection, tables, together
from pages.ui.page import runtime
from pages.ui.page.tables import whole_percent
from tests.pages.conftest import frames_of, go_to, labels, press, printed_by_the_program, said, settled

SHAPE = ModelShape(2, 4, 4, 32, 8, 64, 512, 256)
CORNER = (INDUCTION_FROM, 0.04)


def scores(signed=True):
    rng = np.random.default_rng(0)
    mean = {name: rng.random((2, 4)) for name in SCORES}
    mean["copying"] = 2 * mean["copying"] - 1 if signed else mean["copying"]
    mean["qk_trace"][0] = np.nan
    return InductionScores(mean, {name: np.full((2, 4), 0.01) for name in SCORES}, dict.fromkeys(SCORES, 10))


@pytest.fixture
def open_screen(open_app):
    return partial(open_app, "induction")


FOLDED = ("together", "left", "maps", "about")


@pytest.fixture
def with_induction_heads(monkeypatch):
    """Counts the better half of the heads as induction heads, however little they match prefixes."""
    is_high = property(lambda found: found.mean["prefix_matching"] >= np.median(found.mean["prefix_matching"]))
    monkeypatch.setattr(InductionScores, "is_induction_head", is_high)


def unfolded(*sections):
    return {f"induction_{section}": "true" for section in sections}


def test_what_takes_long_waits_for_a_click_next_to_a_sketch(open_screen, monkeypatch):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    monkeypatch.setattr("pages.ui.page.work.with_loading_s", lambda target, left: 300.0)
    at = open_screen()
    assert "Not measured yet" in said(at) and not at.get("vega_lite_chart") and "See it on the demo model" in labels(at)
    at = press(at, "Measure induction scores, about 5 min here")
    assert len(frames_of(at)) == 2 and not at.exception


def test_the_screen_opens_with_its_finding_a_map_and_a_scatter_plot_and_the_rest_folded(open_screen):
    at = open_screen()
    [map_, scatter] = frames_of(at)
    frame = map_["heads"]
    assert len(frame) == 8 and set(SCORES) <= set(frame)
    assert [heading.value for heading in at.subheader] == ["Prefix matching of every head", "Matching × copying"]
    assert "--out induction.csv" in at.code[0].value and "--variant" not in at.code[0].value
    best = [line.split() for line in printed_by_the_program(at).splitlines() if line.startswith("L")]
    assert [name for name, *_ in best] == frame.set_index("name")["prefix_matching"].nlargest(8).index.to_list()
    assert float(best[0][1]) == pytest.approx(frame["prefix_matching"].max(), abs=6e-3)
    assert frame["prefix_matching"].max() < 0.3 and scatter["corner"].empty, "a model without induction heads"
    assert [each.value for each in at.markdown if each.value.startswith("**None of 8 heads is an induction head**")]
    assert "Without" not in said(at) and not [label for label in labels(at) if label.startswith("Prune the")]
    assert [each.key for each in at.expander if each.key] == [f"induction_{section}" for section in FOLDED]
    at.segmented_control(key="induction_score").set_value("qk_trace").run()
    assert at.subheader[0].value == "QK trace of every head" and len(frames_of(at)) == 2


def test_every_section_is_drawn_once_it_is_unfolded(open_screen):
    at = open_screen(**unfolded(*FOLDED))
    # the map and the scatter plot; what is left of two scores; six maps; the example
    assert len(frames_of(at)) == 2 + 2 + 6 + 1
    drawn = " ".join(each.value for each in at.markdown)
    assert all(f"**{title}**" in drawn for title in charts.TITLES.values())
    [table] = [each.value for each in at.dataframe if "qk_trace" in each.value]
    assert len(table) == 8


def test_sets_of_the_strongest_heads_are_ablated(open_screen):
    at = open_screen(**unfolded("together"))
    assert together.SHOWS in said(at)
    at = press(at, "Ablate the strongest together")
    assert together.SHOWS not in said(at)
    [sets] = [frames["sets"] for frames in frames_of(at) if "sets" in frames]
    assert set(sets["kind"]) == {STRONGEST, RANDOM} and sorted(set(sets["size"])) == [0, 1, 2]
    assert (sets["low"] <= sets["value"] + 1e-9).all() and (sets["value"] <= sets["high"] + 1e-9).all()
    assert any("that match prefixes best" in words.value and "in 5 draws" in words.value for words in at.markdown)
    again = open_screen(**unfolded("together"))
    assert [frames for frames in frames_of(again) if "sets" in frames], "what is stored shows at once"
    assert not any("together" in label for label in labels(again))


def test_the_finding_says_what_is_lost_without_the_induction_heads(
    open_screen, with_induction_heads, tiny_opt, monkeypatch
):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")  # nothing ahead: the button is there
    wanted = {"induction_task": "demo_copy", "induction_shots": "0"}
    at = open_screen(**wanted)
    inside = frames_of(at)[0]["heads"].query("in_corner")
    assert len(inside) and "accuracy on" not in said(at)
    press(at, "Measure accuracy on demo_copy")
    assert not [label for label in labels(at) if label.startswith("Measure accuracy")]
    task, target = TaskSpec("demo_copy", 0), runtime.session().target(LoadSpec(str(tiny_opt), "fp32"))
    questions = select(get_requests(task, None, runtime.store()), ablation.N_QUESTIONS, "stratified")
    masks = [parse_mask(names, target.shape) for names in ("", " ".join(inside["name"]))]
    answers = [evaluation(target, questions, mask).stored(runtime.session()) for mask in masks]
    full, pruned = (whole_percent(accuracy(each).acc) for each in answers)
    assert f"(0 shots) is {pruned}, not clearly less than {full}" in said(at)
    assert "without as many others at random" in said(open_screen(**wanted)), "what is stored shows at once"
    n_weak = int(inside["hardly_copies"].sum())
    weak = f"Prune these {len(inside) - n_weak} and the {n_weak} weak ones"
    press(at, weak if n_weak else f"Prune the induction heads ({len(inside)})")
    go_to(at, "prune")
    assert at.text_input(key="mask").value == selection.mask_text(SHAPE, inside["name"].tolist(), False)


def test_the_first_task_needs_its_examples_and_suits_the_model():
    available = ["demo_question", "demo_outfit", "piqa"]
    assert first_task(available, True) == "demo_outfit" and first_task(available, False) == "piqa"
    assert first_task(["demo_question"], False) == "demo_question"


def test_a_slide_has_no_actions_and_leaves_out_what_lies_below_its_screen(open_screen, with_induction_heads):
    at = open_screen(present="1", **unfolded(*FOLDED))
    assert len(frames_of(at)) == 2 and not [each for each in at.expander if each.key in unfolded(*FOLDED)]
    assert not [label for label in labels(at) if label.startswith(("Prune the", "See where they attend"))]
    assert not [each.value for each in at.caption if "lick" in each.value]


def test_a_selected_head_is_selected_everywhere_and_can_be_pruned(open_screen):
    at = open_screen(**unfolded("maps"))
    at.session_state["heads_selected"], at.session_state["heads_selected_in"] = ("L0H1", "L1H3"), "scatter"
    settled(at)
    for heads in [sent["heads"] for sent in frames_of(at) if "heads" in sent]:
        assert heads.loc[heads["selected"], "name"].tolist() == ["L0H1", "L1H3"]
    assert "L0H1, L1H3" in said(at)
    next(button for button in at.button if button.label == "Prune these").click().run()
    go_to(at, "prune")  # the browser would stay where it was sent; this one goes where it is told
    assert at.text_input(key="mask").value == "L0H1 L1H3"


class State(dict):
    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__


def test_a_late_report_of_a_replaced_table_takes_nothing_from_the_selection(monkeypatch):
    state, sent = State(), []
    monkeypatch.setattr(selection.st, "session_state", state)
    monkeypatch.setattr(selection.st, "dataframe", lambda *_, **look: sent.append((look["key"], look["on_select"])))

    def click(view, *names):
        key = selection._key(view)
        state[key] = {"selection": {"head": [{"layer": int(name[1]), "head": int(name[3])} for name in names]}}
        selection._from_chart(view, key)
        draw()

    def draw():
        selection.head_table(tables.head_scores(SHAPE, scores(), selection.selected_heads(SHAPE)))

    def report(number, *toggled):
        key, on_select = sent[number]
        state[key]["selection"]["rows"] = sorted({*state[key]["selection"]["rows"]} ^ {*toggled})
        on_select()
        draw()

    draw()
    click("map", "L0H0")
    click("map", "L0H0", "L0H1")
    chart = selection._key("map")
    for number in (0, 1):  # as they were drawn
        report(number)
    assert set(selection.selected_heads(SHAPE)) == {"L0H0", "L0H1"} and selection._key("map") == chart
    names = tables.head_scores(SHAPE, scores(), ()).sort_values("prefix_matching", ascending=False)["name"].tolist()
    report(1, names.index("L1H3"))  # a click that came while the table was replaced
    assert set(selection.selected_heads(SHAPE)) == {"L0H0", "L0H1", "L1H3"}
    report(-1, names.index("L0H0"))
    report(-1, names.index("L1H2"))
    assert set(selection.selected_heads(SHAPE)) == {"L0H1", "L1H2", "L1H3"} and sent[-1][0] == sent[-2][0]
    report(-1, names.index("L1H2"))
    assert set(selection.selected_heads(SHAPE)) == {"L0H1", "L1H3"}


def test_importance_of_all_tasks_brings_their_lines_whichever_screen_measured_it(open_screen, only_tasks, monkeypatch):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")  # nothing ahead: the button is there
    monkeypatch.setattr(overlap, "SHOTS", 0)  # as Prune here
    only_tasks("demo_outfit", "demo_copy")
    of_prune = {"task": "demo_outfit", "order": "gradient"}
    at = open_screen(**of_prune, **unfolded("left"))
    assert "0 of 2 tasks" in said(at)
    press(go_to(at, "prune"), "Measure head and FFN scores")
    assert "1 of 2 tasks" in said(go_to(at, "induction"))
    press(at, "Measure all")
    assert "2 of 2 tasks" in said(at)
    kinds = set(frames_of(at)[-1]["lines"]["kind"])
    assert kinds == {"task", "chosen", "reversed", "aggregate", "random"}
    assert "2 of 2 tasks" in said(open_screen(**unfolded("left"))), "a new session finds what is stored"


def test_sets_in_words_and_as_a_chart():
    values = {HeadSet(): 0.85, HeadSet((1,)): 0.84, HeadSet((1, 2)): 0.33}
    values |= {HeadSet((3,), 1): 0.86, HeadSet((4,), 2): 0.84, HeadSet((3, 5), 1): 0.8, HeadSet((4, 6), 2): 0.9}
    shown = head_sets.by_size(head_sets.rows(SHAPE, {each: {"acc": acc} for each, acc in values.items()}), "acc")
    assert head_sets.in_words(shown, whole_percent) == (
        "The full model: **85%**. Without the **2 heads** that match prefixes best: **33%**; without the same number "
        "of others **85%** (80% to 90% in 2 draws). Without the best one alone: 84%."
    )
    assert head_sets.in_words(shown[shown["size"] == 0], whole_percent) == "Not measured yet."
    assert b"<svg" in to_svg(head_sets.chart(shown, "Questions right", "%", (0, 1)), "sets")
    of_one_head = {HeadSet(): {"acc": 0.9}, HeadSet((0,)): {"acc": 0.5}, HeadSet((), 1): {"acc": 0.9}}
    assert len(head_sets.by_size(head_sets.rows(SHAPE, of_one_head), "acc")) == 3, "without others, none are drawn"


def test_frames_hold_scores_ranks_and_the_corner():
    frame = tables.head_scores(SHAPE, scores(), ["L1H2"])
    assert frame.loc[frame["selected"], "name"].tolist() == ["L1H2"]
    assert frame.sort_values("prefix_matching", ascending=False)["prefix_matching_rank"].tolist() == list(range(1, 9))
    assert frame["copying_share"].tolist() == ((frame["copying"] + 1) / 4).tolist(), "0 is none, a half where it stops"
    expected = (frame["prefix_matching"] >= INDUCTION_FROM) & (frame["copying_share"] > 1 / 25)
    assert (frame["in_corner"] == expected).all() and expected.any() and not expected.all()
    assert "heads; highest: " in tables.in_words(frame, "qk_trace")


def test_the_corner_is_drawn_for_induction_heads_alone():
    found = scores()
    found.mean["prefix_matching"] = np.array([[0.03, 0.02, 0.04, 0.03], [0.3, 0.28, 0.4, 0.35]])
    found.mean["copying"] = 4 * np.array([[0.04, 0.05, 0.03, 0.04], [0.2, 0.05, 0.03, 0.3]]) - 1
    frame = tables.head_scores(SHAPE, found, [])
    assert frame.loc[frame["in_corner"], "name"].tolist() == ["L1H0", "L1H3"], "L1H2 copies no more than chance"
    assert tables.corner_in_words(frame).endswith("(prefix matching from 0.3 and copying above chance): L1H0, L1H3.")
    found.mean["prefix_matching"] = found.mean["prefix_matching"] / 10
    none = tables.head_scores(SHAPE, found, [])
    assert tables.corner_in_words(none).endswith(": none.")
    assert len(charts.induction_scatter(frame, CORNER).datasets["corner"]) == 1
    assert charts.induction_scatter(none, CORNER).datasets["corner"] == [], "no corner without such heads"


def test_induction_heads_that_copy_hardly_more_than_chance_are_counted():
    found = scores()
    found.mean["prefix_matching"][:] = 0.5
    found.mean["copying"] = 4 * np.array([[0.05, 0.2, 0.06, 0.02], [0.01] * 4]) - 1
    found.standard_error["copying"] = np.full((2, 4), 4 * 0.009)
    frame = tables.head_scores(SHAPE, found, [])
    assert frame.loc[frame["hardly_copies"], "name"].tolist() == ["L0H0"], "L0H3 is none"
    assert tables.finding(frame) == (
        "**2 of 8 heads are clear induction heads**: L0H1, L0H2; in 1 more, copying is hardly above chance."
    )
    clear = frame.assign(hardly_copies=False)
    assert tables.finding(clear) == "**3 of 8 heads are induction heads**: L0H0, L0H1, L0H2."
    none = frame.assign(in_corner=False, hardly_copies=False)
    assert tables.finding(none).startswith("**None of 8 heads is an induction head**")


def test_masks_of_a_selection():
    assert selection.mask_text(SHAPE, ["L1H2", "L0H0"], keep_only=False) == "L0H0 L1H2"
    assert selection.mask_text(SHAPE, ["L1H2"], keep_only=True) == "L0H* L1H0-1 L1H3"


def test_lines_of_what_is_left_start_at_all_and_end_at_nothing():
    found = scores(signed=False)
    orders = {"a": np.arange(8), "b": random_order(8, 1)}
    lines = tables.retained_lines(found.mean["copying"], orders, "a", random_order(8, 2))
    for _, line in lines.groupby(["line", "kind"]):
        assert line["left"].iloc[0] == pytest.approx(1) and line["left"].iloc[-1] == pytest.approx(0)
        assert (line["left"].diff().dropna() <= 1e-12).all()
    forward = lines[lines["kind"] == "chosen"]["left"].to_numpy()
    backward = lines[lines["kind"] == "reversed"]["left"].to_numpy()
    half = len(forward) // 2
    assert forward[half] + backward[half] == pytest.approx(1)


def test_overlap_rows_are_spearman_and_a_count():
    frame = tables.head_scores(SHAPE, scores(), [])
    same = frame["prefix_matching"].to_numpy().reshape(2, 4)
    rows = tables.overlap_rows(frame, {"same": same, "opposite": -same}, top=2).set_index("ranking")
    assert rows.loc["same", "prefix_matching_srcc"] == pytest.approx(1) and rows.loc["same", "kept"] == 2
    assert rows.loc["opposite", "prefix_matching_srcc"] == pytest.approx(-1) and rows.loc["opposite", "kept"] == 0


def test_charts_are_valid_and_become_files():
    frame = tables.head_scores(SHAPE, scores(), ["L0H0"])
    made = [
        charts.score_map(frame, name, is_large) for name, is_large in zip(SCORES, [True] + 9 * [False], strict=False)
    ]
    made += [charts.induction_scatter(frame, CORNER), charts.example_pattern()]  # fmt: skip
    for chart in made:
        assert chart.datasets
        assert to_svg(chart, "title").startswith(b"<svg")


def test_pruned_induction_heads_are_restored_and_the_rest_stays_pruned(monkeypatch):
    written = {}
    monkeypatch.setattr(selection.carried, "set_pruned", written.__setitem__)
    shape = ModelShape(2, 2, 4, 8, 4, 16, 32, 16)
    selection._restore(shape, ["L0H0"], parse_mask("L0H0 L1H1 F1", shape))
    assert parse_mask(written["induction"], shape) == parse_mask("L1H1 F1", shape)
