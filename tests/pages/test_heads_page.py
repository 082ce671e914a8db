"""The Heads screen in one process: the map, the card of a head, heads alone and together, and the rankings of tasks."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import spearmanr

from engine.accuracy.evaluation import accuracy, evaluation
from engine.heads.induction import induction
from engine.importance.rankings import order
from engine.importance.scores import importance
from engine.models.loading import LoadSpec
from engine.models.masks import Mask, parse_mask
from engine.progress import final
from engine.questions.rendering import TaskSpec, render_questions, select
from engine.questions.tasks import TaskInfo, TaskStatus
from engine.shapes import ModelShape
from engine.studies.sweeps import Point, SweepRow
from engine.views.view import plain_text
from pages.ui.controls import many_tasks
from pages.ui.controls.many_tasks import JUDGES
from pages.ui.heads.below import DISTURBED
from pages.ui.heads.rankings import costs_of
from pages.ui.page import runtime
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.page.tables import mask_counts
from pages.ui.page.work import Work
from tests.pages.conftest import (
    command_of,
    frames_of,
    go_to,
    heading_of,
    labels,
    number_after,
    press,
    printed_by_the_program,
    ran,
    said,
    same_on_the_command_line,
    settled,
)

NAMES = ("demo_copy", "demo_lookup", "demo_walk")
LOOKS = ("It looks at", "From a repeated token it looks")


@pytest.fixture
def open_screen(open_app, only_tasks):
    only_tasks(*NAMES)
    return partial(open_app, "heads")


def maps_of(at):
    return [table for tables in frames_of(at) for table in tables.values() if {"shade", "selected"} <= {*table}]


def stored(at, what, task, tiny_opt):
    session = runtime.session()
    target = session.target(LoadSpec(str(tiny_opt), "fp32"))
    questions = select(render_questions(task, None, session.store), RANKING_QUESTIONS, "stratified")
    return importance(target, questions, what).stored(session)


def test_it_waits_for_a_click_and_draws_what_each_head_costs(open_screen, questions, tiny_opt, tmp_path, capsys):
    at = open_screen(colors="Measured cost")
    assert not maps_of(at) and "You will see a map of all heads" in said(at)
    settled(press(at, "Measure 1 missing"))
    settled(press(at, "Measure 1 missing"))  # the FFNs
    [table] = maps_of(at)
    task = TaskSpec(str(questions), 0, "train")
    scores, ffns = (stored(at, what, task, tiny_opt) for what in ("heads-oracle", "ffns"))
    rows = table.set_index("name")["score"]
    assert rows[[f"L1H{head}" for head in range(4)]].tolist() == pytest.approx((100 * scores.scores[1]).tolist())
    assert rows[["F0", "F1"]].tolist() == pytest.approx((100 * ffns.scores).tolist())
    [clear] = {*table.loc[table["column"].ne("FFN"), "is_clear"]} or [None]
    assert clear == bool(scores.is_clear.any())
    assert same_on_the_command_line(at, capsys, 0, tmp_path / "o.csv")["what"] == "heads-oracle"


def test_a_model_opens_on_what_can_be_shown(measures_ahead, open_screen):
    at = open_screen()
    [table] = maps_of(at)
    assert table["score"].notna().any() and "looks at" in said(at)


def test_a_head_is_chosen_pruned_and_restored(measures_ahead, open_screen):
    at = open_screen(head="L1H2")
    assert "**L1H2**" in said(at)
    [table] = maps_of(at)
    assert table.loc[table["selected"], "name"].tolist() == ["L1H2"]
    press(at, "Prune it")
    assert at.session_state["mask"] == "L1H2" and "Restore it" in labels(at)
    [table] = maps_of(at)
    assert table.loc[table["pruned"], "name"].tolist() == ["L1H2"]
    at.text_input(key="head").set_value("nose")
    ran(at)
    assert any("is not a head of this model" in each.value for each in at.error)


def test_a_kept_head_of_a_level_is_restored_by_name(measures_ahead, open_screen):
    at = open_screen(head="L0H1", heads="100", order="random")
    assert "Restore it" in labels(at)
    press(at, "Restore it")
    assert at.session_state["mask"] == "keep L0H1" and "Prune it" in labels(at)


def test_the_card_is_of_stored_results(open_screen, tiny_opt):
    at = open_screen(head="L1H2", colors="Induction")
    assert "**L1H2**." not in said(at) and not maps_of(at)
    settled(press(at, "Measure induction"))
    [table] = maps_of(at)
    session = runtime.session()
    found = induction(session.target(LoadSpec(str(tiny_opt), "fp32"))).stored(session)
    assert table["score"].tolist() == pytest.approx(found.mean["prefix_matching"].ravel().tolist())
    copies = found.copying_share - 2 * found.copying_share_error > found.chance  # clearly, as the card says
    assert table["dot"].tolist() == copies.ravel().tolist()
    assert "prefix matching" in said(at)


def test_alone_and_together_is_what_the_command_prints(open_screen, capsys):
    at = settled(press(open_screen(), "Measure"))
    while any(label.startswith("Measure, ") or label == "Measure" for label in labels(at)):
        at = settled(press(at, "Measure"))
    commands = command_of(at).splitlines()
    [number] = [number for number, each in enumerate(commands) if " ablate " in each]
    found = same_on_the_command_line(at, capsys, number)
    assert found["cached"] and [each for each in found["alone"]]


def test_rankings_of_tasks_are_drawn_and_compared(open_screen, tmp_path, capsys):
    at = open_screen(heads_tab="Across tasks", heads_tasks="demo_copy,demo_lookup", heads_shots="0")
    assert "You will see how far these tasks rank heads alike" in said(at)
    settled(press(at, "Measure these rankings"))
    session, scores = runtime.session(), {}
    [request] = [each for each in command_of(at).splitlines() if "correlate" in each]
    target = session.target(LoadSpec(request.split("--model ")[1].split()[0], "fp32"))
    for name in ("demo_copy", "demo_lookup"):
        questions = select(
            render_questions(TaskSpec(name, 0, "train"), None, session.store), RANKING_QUESTIONS, "stratified"
        )
        scores[name] = importance(target, questions, "heads-one-divisor").stored(session).scores
    [matrix] = [table for tables in frames_of(at) for table in tables.values() if {"a", "b", "value"} <= {*table}]
    values = matrix.set_index(["a", "b"])["value"]
    rho = spearmanr(*(each.ravel() for each in scores.values())).statistic
    assert values["demo_copy", "demo_lookup"] == values["demo_lookup", "demo_copy"] == pytest.approx(rho)
    assert np.isnan(values["demo_copy", "demo_copy"])
    [ranks] = [table for tables in frames_of(at) for table in tables.values() if "rank_a" in table]
    assert len(ranks) == 8 and "rank correlation" in said(at)
    out = same_on_the_command_line(at, capsys, 0, tmp_path / "correlations.csv")
    assert out["mean_srcc"]["0"] == pytest.approx(rho)
    for side in ("a", "b"):
        told = out["ranks"][f"{at.selectbox(key=f'heads_{side}').value}, 0 shots"]
        assert np.ravel(told).tolist() == ranks.sort_values("name")[f"rank_{side}"].tolist()
    at.segmented_control(key="heads_measure").set_value("within")
    [row] = [row for row in out["rows"] if {row["a"], row["b"]} == {"demo_copy", "demo_lookup"}]
    assert matrix_of(settled(at))["demo_copy", "demo_lookup"] == pytest.approx(row["within"])
    mean = number_after("Mean rank correlation of two tasks: ", printed_by_the_program(at))
    assert mean == pytest.approx(rho, abs=6e-4)


@pytest.fixture
def across(open_screen):
    return partial(open_screen, heads_tab="Across tasks", heads_tasks="demo_copy,demo_lookup", heads_shots="0")


def matrix_of(at):
    [matrix] = [table for tables in frames_of(at) for table in tables.values() if {"a", "b", "value"} <= {*table}]
    return matrix.set_index(["a", "b"])["value"].dropna().to_dict()


@pytest.mark.slow("measures two rankings and four accuracies")
def test_what_another_tasks_order_costs_is_measured_on_demand_and_told(across, only_tasks, tmp_path, capsys):
    at = press(across(), "Measure these rankings")
    assert "heads pruned by the order of" not in said(at)
    press(at, "Prune 50% by each of 2 rankings")
    assert "with 50% of heads pruned by the order of another task, no task clearly loses" in heading_of(at)
    session = runtime.session()
    task, others = TaskSpec("demo_copy", 0), ("demo_copy", "demo_lookup")
    [request] = [each for each in command_of(at).splitlines() if "correlate" in each]
    target = session.target(LoadSpec(request.split("--model ")[1].split()[0], "fp32"))
    asked = select(render_questions(task, None, session.store), JUDGES, "stratified")
    right = []
    for name in others:
        trained = render_questions(TaskSpec(name, 0, "train"), None, session.store)
        scores = importance(target, select(trained, RANKING_QUESTIONS, "stratified"), "heads-one-divisor")
        heads = np.ones(8, bool)
        heads[order(scores.stored(session).scores)[:4]] = False
        mask = Mask.from_arrays(heads.reshape(2, 4), np.ones(2, bool))
        right.append(accuracy(final(evaluation(target, asked, mask).run(session))).acc)
    at.segmented_control(key="heads_measure").set_value("cost")
    costs = matrix_of(settled(at))
    assert {*costs} == {others, others[::-1]} and costs[others] == pytest.approx(100 * (right[0] - right[1]))
    commands = command_of(at).splitlines()
    told = [same_on_the_command_line(at, capsys, number, tmp_path / "a.csv")
            for number, each in enumerate(commands) if " sweep " in each]  # fmt: skip
    acc = {(row["task"], row["of"]): row["acc"] for each in told for row in each["rows"]}
    assert costs == pytest.approx({(a, b): 100 * (acc[a, a] - acc[a, b]) for a, b in costs})


@pytest.mark.slow("measures four rankings")
def test_shot_counts_of_a_task_are_rankings_of_their_own(across):
    at = press(across(heads_shots="0,1"), "Measure these rankings")
    names = [f"demo_{name}, {shots}" for name in ("copy", "lookup") for shots in ("0 shots", "1 shot")]
    assert {name for pair in matrix_of(at) for name in pair} == {*names} and len(matrix_of(at)) == 12
    at.selectbox(key="heads_a").set_value(names[0])
    at.selectbox(key="heads_b").set_value(names[3])
    settled(at)
    [ranks] = [table for tables in frames_of(at) for table in tables.values() if "rank_a" in table]
    rho = spearmanr(ranks["rank_a"], ranks["rank_b"]).statistic
    assert matrix_of(at)[names[0], names[3]] == pytest.approx(rho)


@pytest.mark.slow("measures two rankings")
def test_of_ffns_there_is_no_order_within_a_layer(across):
    at = press(across(heads_score="FFNs"), "Measure these rankings")
    assert "Within a layer" not in at.segmented_control(key="heads_measure").options
    [ranks] = [table for tables in frames_of(at) for table in tables.values() if "rank_a" in table]
    assert sorted(ranks["name"]) == ["F0", "F1"] and "--score ffns" in command_of(at)


@pytest.mark.slow("measures two rankings")
def test_a_task_without_its_data_is_one_plain_line(across, monkeypatch, tmp_path):
    folder = tmp_path / "data" / "copa"
    folder.mkdir(parents=True)
    for split in ("train", "validation"):
        (folder / f"{split}.jsonl").write_text('{"premise": "It rained."}\n')
    here = many_tasks.list_tasks
    info = TaskInfo("copa", "COPA", "", 0.5, "", ())
    monkeypatch.setattr(many_tasks, "list_tasks", lambda at: [*here(at), TaskStatus(info, "folder", True, "")])
    at = across(heads_tasks="copa,demo_copy,demo_lookup", data_dir=str(tmp_path / "data"))
    press(at, "Measure 3 missing scores")
    [line] = [warning.value for warning in at.warning]
    assert "copa" in line and "row 1" in line and "\n" not in line
    assert {*matrix_of(at)} == {("demo_copy", "demo_lookup"), ("demo_lookup", "demo_copy")}, "the others are drawn"


def swept(task, by, of, acc, low=None, high=None):
    return SweepRow(Point(TaskSpec(task, 5), 700, 0, by, of), 100, acc, low or acc, high or acc, 0.25, 1, 0, 0, 0, 1.0)


def test_what_an_order_costs_is_against_the_own_order():
    rows = [swept("a", "own", "", 0.9), swept("b", "own", "", 0.8, 0.5, 0.9), swept("a", "task", "b", 0.95)]
    rows += [swept("b", "task", "a", 0.6, 0.55, 0.7), swept("a", "task", "a", 0.9), swept("b", "task", "b", 0.8)]
    costs = costs_of(rows, lambda task: task.name)
    assert {pair: (round(lost, 9), clear) for pair, (lost, clear) in costs.items()} == {
        ("a", "b"): (-5, True), ("b", "a"): (20, False)}  # fmt: skip


@pytest.mark.slow("measures all that the screen shows, and three tasks again")
def test_what_a_head_costs_on_each_task_is_recounted(measures_ahead, open_screen, tiny_opt, questions, capsys):
    """Of the study's task and two others, by the answers with and without the head; the command reads the same ones."""
    at = open_screen(head="L1H2", colors="Induction")
    [costs] = [table for tables in frames_of(at) for table in tables.values() if {"row", "lost"} <= {*table}
               and table["row"].str.contains("shots").any()]  # fmt: skip
    session = runtime.session()
    target = session.target(LoadSpec(str(tiny_opt), "fp32"))
    lost = []
    for name in (str(questions), *NAMES[:2]):
        asked = render_questions(TaskSpec(name, 0, "train"), None, session.store)
        asked = select(asked, RANKING_QUESTIONS, "stratified")
        full, gone = (final(evaluation(target, asked, parse_mask(mask, target.shape)).run(session)) for mask in
                      ("", "L1H2"))  # fmt: skip
        lost.append(100 * (np.mean(full.correct) - np.mean(gone.correct)))
    shown = costs.drop_duplicates("row")
    assert len(shown) == 3 and sorted(shown["lost"]) == pytest.approx(sorted(lost))
    [number] = [number for number, each in enumerate(command_of(at).splitlines()) if " head " in each]
    found = same_on_the_command_line(at, capsys, number, more=["--stored"])
    assert "tasks" not in found["left"] and [each["n"] for each in found["tasks"]] == shown["n"].tolist()
    assert [-100 * each["change"] for each in found["tasks"]] == pytest.approx(shown["lost"].tolist())
    assert [each["is_clear"] for each in found["tasks"]] == shown["is_clear"].tolist()
    words, looks = (plain_text(each.value) for each in at.markdown if each.value.startswith(("**L1H2**", *LOOKS)))
    assert found["finding"] == f"{words} {looks}"


@pytest.mark.slow("measures two scores of all heads")
def test_the_screen_opens_with_the_costliest_head_or_that_of_the_best_prefix_matching(open_screen, tiny_opt, questions):
    at = settled(press(open_screen(colors="Induction"), "Measure induction"))
    found = induction(runtime.session().target(LoadSpec(str(tiny_opt), "fp32"))).stored(runtime.session())
    layer, head = np.unravel_index(np.argmax(found.mean["prefix_matching"]), (2, 4))
    assert at.text_input(key="head").placeholder == f"L{layer}H{head}"
    at = press(open_screen(colors="Measured cost"), "Measure 1 missing")
    scores = stored(at, "heads-oracle", TaskSpec(str(questions), 0, "train"), tiny_opt).scores
    layer, head = (int(at.text_input(key="head").placeholder[place]) for place in (1, 3))
    assert scores[layer, head] == scores.max()


def test_while_stored_results_are_read_nothing_is_offered(across, monkeypatch):
    monkeypatch.setattr(Work, "is_read", False)
    at = across()
    assert "Looking for stored results" in said(at) and "Not measured yet" not in said(at)
    assert not frames_of(at) and not [label for label in labels(at) if label.startswith("Measure")]


@pytest.mark.slow("opens seven screens")
def test_the_study_stays_from_screen_to_screen(open_app):
    at = open_app(order="random", heads="25", mask="F1")
    [badge] = badges(at)
    assert "2 of 8 heads, 1 of 2 FFNs" in badge
    at.segmented_control(key="colors").set_value("induction")
    for name in ("text", "heads"):
        go_to(at, name)
        assert badges(at) == [badge] * (name == "heads")
        assert at.number_input(key="heads").value == 25 and at.text_input(key="mask").value == "F1"
    assert at.segmented_control(key="colors").value == "induction"
    go_to(go_to(at, "bench"), "prune")
    assert badges(at) == [badge] and at.number_input(key="heads").value == 25
    press(go_to(at, "text"), "Restore")
    assert badges(at) == [] and at.text_input(key="mask").value == ""
    assert badges(go_to(at, "heads")) == [] == badges(go_to(at, "prune"))


def badges(at):
    return [each.value for each in at.markdown if "Pruned:" in each.value]


@pytest.mark.parametrize(
    "text, words", [("L0H0-2", "3 of 24 heads"), ("F1", "1 of 6 FFNs"), ("L5H0 F1", "1 of 24 heads, 1 of 6 FFNs")]
)
def test_a_badge_says_only_what_is_pruned(text, words):
    shape = ModelShape(6, 4, 4, 32, 8, 64, 512, 256)
    assert mask_counts(shape, parse_mask(text, shape)) == words


def test_what_is_folded(measures_ahead, open_screen, tmp_path, capsys):
    at = open_screen(
        section_prefix_matching_against_copying="True",
        section_what_pruning_keeps_of_the_induction_capacity="True",
        heads_table="True",
    )
    at = settled(press(at, "Measure")) if any(each.startswith("Measure") for each in labels(at)) else at
    tables = [{*table} for tables in frames_of(at) for table in tables.values()]
    assert {"prefix_matching", "copying_share"} <= set().union(*tables)
    assert any("prefix_matching" in frame.value for frame in at.dataframe)
    left = [table for tables in frames_of(at) for table in tables.values() if {"line", "left"} <= {*table}]
    [number] = [number for number, each in enumerate(command_of(at).splitlines()) if "--induction" in each]
    told = same_on_the_command_line(at, capsys, number, tmp_path / "a.csv")["capacity_left"]
    for table, rows in zip(left, told.values(), strict=True):
        assert [row["left"] for row in rows] == pytest.approx(table["left"].tolist())


@pytest.mark.slow("loads two models")
def test_two_precisions_are_compared_where_the_study_compares_them(open_screen, capsys):
    assert DISTURBED not in [each.label for each in open_screen().expander]
    at = open_screen(against="bf16", section_what_lower_precision_disturbs="True")
    assert DISTURBED in [each.label for each in at.expander] and "whose outputs differ" in said(at)
    at.button(key=f"offer {DISTURBED}").click()
    at = settled(settled(at))
    tables = [table for tables in frames_of(at) for table in tables.values()]
    [table] = [each for each in tables if "end_to_end" in each and "layer" in each and len(each) == 10]
    commands = command_of(at).splitlines()
    [number] = [number for number, each in enumerate(commands) if " precision " in each]
    found = same_on_the_command_line(at, capsys, number)
    assert found["cached"] and [each["name"] for each in found["models"]] == ["bf16"] and found["reference"] == "fp32"
    assert table["disturbed"].tolist() == pytest.approx([each["disturbed"] for each in found["components"]])
