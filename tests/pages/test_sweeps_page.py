"""The Sweeps screen and its charts: what is drawn is what was measured, and a sweep outlives the page."""

import ast
import json
import shlex
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cache import open_store
from engine.cli import parser
from engine.cli.options import request_of
from engine.importance.rankings import CRITERIA, KINDS
from engine.models.loading import LoadSpec
from engine.models.session import Session
from engine.progress import final
from engine.questions.requests import TaskSpec
from engine.requests import Sweep, argv, program
from engine.studies.compare import Comparing, areas, comparison
from engine.studies.statements import break_points
from engine.studies.study import OUT_OF_DISTRIBUTION, RANDOM_LEVELS, TENTHS, pool_of, random_points, transfer_points
from engine.studies.surveys import StudySettings
from engine.studies.sweeps import Point, SweepRow, points, sweep
from pages.ui.controls import many_tasks
from pages.ui.figures.transfer import transfer_in_words, transfer_map, transfer_rows
from pages.ui.importance.tables import EVEN
from pages.ui.page import runtime, work
from pages.ui.sweeps import charts, plans, tables
from tests.conftest import some_of
from tests.pages.conftest import (
    frames_of,
    labels,
    level,
    press,
    printed_by_the_program,
    program_of,
    said,
    settled,
    slide,
)
from tests.pages.test_prune_page import published

TASKS = [TaskSpec(name, shots) for name in ("piqa", "copa") for shots in (0, 5)]


def row(task, heads, ffns, acc, by="own", of="", seed=0, lost=0, n=100):
    p = 0.001 if lost > 10 else 1.0
    return SweepRow(
        Point(task, heads, ffns, by, of, seed), n, acc, acc - 0.1, acc + 0.1, 0.25, heads // 100, 0, 0, lost, p
    )


def falling(task, start=0.9):
    """Flat to 50%, then down to chance."""
    return [row(task, level, 0, start if level <= 500 else 0.25, lost=0 if level <= 500 else 60)
            for level in range(0, 1001, 100)]  # fmt: skip


@pytest.fixture
def open_screen(open_app):
    return partial(open_app, "sweeps", sweeps_tasks="demo_copy,demo_price", sweeps_shots="0", sweeps_limit="16")


def drawn(at):
    """The named tables of the first chart."""
    return frames_of(at)[0]


def measure(at):
    return press(at, "Measure")


def is_measured(at):
    return not [label for label in labels(at) if label.startswith("Measure")]


def test_curves_are_measured_once_and_found_again_by_the_program_too(open_screen, tiny_opt, monkeypatch):
    published(monkeypatch, (tiny_opt, "demo_price", 0, False, "acc", 0.4567), (tiny_opt, "piqa", 0, True, "acc", 0.6))
    at = open_screen()
    assert not at.get("vega_lite_chart")
    measure(at)
    curves = drawn(at)["curves"]
    setting = StudySettings(LoadSpec(str(tiny_opt), "fp32"), None, None, 16, 64, EVEN)
    wanted = points([TaskSpec("demo_copy", 0), TaskSpec("demo_price", 0)], range(0, 1001, 100), [0])
    session = Session(runtime.store())
    rows = final(sweep(session.target(setting.spec), setting, wanted, ()).run(session)).rows
    for each in rows:
        line = curves[(curves["line"] == each.point.task.name) & (curves["level"] == each.point.heads_permille / 1000)]
        assert line["acc"].tolist() == [each.acc]
    means = curves[curves["kind"] == "mean"].set_index("level")["acc"]
    assert means[0.3] == np.mean([each.acc for each in rows if each.point.heads_permille == 300])
    assert "With 16 questions, a loss of" in said(at)
    assert "at chance" in at.dataframe[0].value["no_loss_up_to"].tolist(), "of a random model"
    [frame] = [each.value for each in at.dataframe if "full_acc" in each.value]
    assert frame.set_index("task")["published"].fillna(-1).to_dict() == {"demo_copy": -1, "demo_price": 0.4567}
    [words] = [each.value for each in at.caption if "Published values" in each.value]
    assert words.endswith("Published values: lm-evaluation-harness 0.3, all questions of the task, without BOS.")
    own = curves[curves["line"] == "demo_copy"].sort_values("level")["acc"].to_list()
    lines = printed_by_the_program(at)
    assert f"{own[0]:.1%}" in lines and lines.rstrip().endswith("from the store")
    _, printed, *_ = ast.parse(program_of(at)).body
    found = eval(compile(ast.Expression(printed.value.args[0]), "program", "eval"), {"Sweep": Sweep})
    assert [row["acc"] for row in found.fields["rows"] if row["task"] == "demo_copy"] == own
    published(monkeypatch)
    again = open_screen()
    assert is_measured(again), "stored, so drawn at once"
    assert len(drawn(again)["curves"]) == len(curves)
    [frame] = [each.value for each in again.dataframe if "full_acc" in each.value]
    assert "published" not in frame and "Published" not in said(again)


@pytest.mark.parametrize("known, is_drawn", [((100,), False), ((0, 300, 600, 1000), True)])
def test_a_few_points_of_a_curve_are_no_chart(open_screen, tiny_opt, monkeypatch, known, is_drawn):
    setting = StudySettings(LoadSpec(str(tiny_opt), "fp32"), None, None, 64, 64, EVEN)
    session = Session(runtime.store())
    of_one = [Point(TaskSpec("demo_copy", 0), level, 0) for level in known]  # as after a drag on Prune
    final(sweep(session.target(setting.spec), setting, of_one, ()).run(session))
    monkeypatch.setattr(many_tasks, "BUDGET_S", 0.0)
    at = open_screen(sweeps_limit="64")
    offered = [label.partition(" ")[0] for label in labels(at) if label.startswith(("Measure", "Quick look"))]
    assert (bool(at.get("vega_lite_chart")), offered) == (is_drawn, ["Measure"] if is_drawn else ["Measure", "Quick"])


def test_what_workers_of_a_plan_measure_is_drawn(open_screen, tiny_opt, monkeypatch):
    at, tasks = open_screen(), [TaskSpec("demo_copy", 0), TaskSpec("demo_price", 0)]
    assert not at.get("vega_lite_chart")
    wanted, puts = points_of_section("heads", tasks, tasks[0], 500), runtime.store().n_puts
    store = open_store(runtime.store().directory)  # as another process opens it
    session, setting = Session(store), StudySettings(LoadSpec(str(tiny_opt), "fp32"), None, None, 16, 64, EVEN)
    last = list(
        sweep(session.target(setting.spec), setting, wanted, pool_of([task.name for task in tasks])).run(session)
    )
    store.close()
    assert runtime.store().n_puts == puts
    monkeypatch.setattr(work, "OTHERS_S", 0.0)
    monkeypatch.setattr(work, "SHARE", 0.0)
    settled(at)
    assert is_measured(at)
    curves = drawn(at)["curves"]
    mine = {(row.point.task.name, row.point.heads_permille / 1000): row.acc for row in last[-1].value.rows
            if row.point.by == "own"}  # fmt: skip
    shown = curves[curves["line"].isin([task.name for task in tasks])]
    assert dict(zip(zip(shown["line"], shown["level"], strict=True), shown["acc"], strict=True)) == mine


ELSEWHERE = ("heads", "transfer", "both")  # the first two are measured in other tests, the third here first


@pytest.mark.thorough
@pytest.mark.parametrize("section", some_of(["both", *(name for name in plans.SECTIONS if name not in ELSEWHERE)]))
def test_every_section_measures_what_it_plans(open_screen, section):
    at = measure(open_screen(sweeps_what=plans.SECTIONS[section]))  # the address has what the control shows
    assert at.selectbox(key="sweeps_what").value == section
    assert at.get("vega_lite_chart"), [warning.value for warning in at.warning]
    assert is_measured(at) and "--limit 16" in at.code[0].value


@pytest.mark.parametrize("section", plans.SECTIONS)
def test_the_commands_measure_what_the_section_plans(section):
    tasks = [TaskSpec(name, shots) for name in ("demo_copy", "demo_induction", "demo_price") for shots in (0, 5)]
    front, pool = tasks[1], pool_of(["demo_copy", "demo_induction", "demo_price"])
    requests = plans.requests_of(section, tasks, front, 250, {"limit": 16, "head_score": EVEN})
    for request in requests:
        assert request_of(parser().parse_args(argv(request))) == request and request.limit == 16
        assert request.order != "aggregate" or request.sources() == pool
    assert set(plans.points_of(requests)) == set(points_of_section(section, tasks, front, 250))
    by_score = [request for request in requests if request.order != "random"]
    assert {request.settings().heads_by for request in by_score} == {EVEN}, "every ranking by the score in Settings"


def points_of_section(section, tasks, front, permille):
    here = [task for task in tasks if task.shots == front.shots]
    outside = [task for task in tasks if task.name in OUT_OF_DISTRIBUTION]
    heads, ffns = (TENTHS, [0]), ([0], TENTHS)
    few_heads, few_ffns = (RANDOM_LEVELS, [0]), ([0], RANDOM_LEVELS)
    return {
        "heads": [*points(tasks, *heads), *random_points(tasks, *few_heads)],
        "ffns": [*points(tasks, *ffns), *random_points(tasks, *few_ffns)],
        "both": points(tasks, TENTHS, TENTHS),
        "transfer": [*points(here, [permille], [0]), *transfer_points(here, permille)],
        "outside": [*points(outside, *heads), *points(outside, *heads, "aggregate")],
        "rescored": [*points([front], *heads), *random_points([front], *few_heads),
                     *points([front], *heads, "rescored")],
    }[section]  # fmt: skip


def test_a_section_without_tasks_asks_nothing():
    tasks = [TaskSpec("demo_copy", 0)]
    assert plans.requests_of("outside", tasks, tasks[0], 250, {}) == [] and program([]) == ""


def test_the_level_of_transfer_is_dragged(open_screen):
    at = open_screen(sweeps_what="Transfer")
    assert at.selectbox(key="sweeps_what").value == "transfer"
    assert level(at, "sweeps_level") == 50 and "--head-levels 50 --order task" in at.code[0].value
    measure(settled(slide(at, "sweeps_level", 25)))
    assert "--head-levels 25 --order task" in at.code[0].value and at.get("vega_lite_chart") and is_measured(at)
    assert level(settled(slide(at, "sweeps_level", 0)), "sweeps_level") == 0 and is_measured(at)


@pytest.mark.parametrize("section, is_quick", [("Heads", False), ("Transfer", True), ("FFNs", None)])
def test_heads_and_transfer_of_the_demo_model_start_without_a_click(open_screen, monkeypatch, section, is_quick):
    started = []
    monkeypatch.setattr(many_tasks, "start_first_view", lambda *of, is_quick: started.append(is_quick))
    open_screen(sweeps_what=section)
    assert set(started) == {is_quick} - {None}


def test_a_task_without_rows_gives_one_line_and_the_others_are_drawn(open_screen, tmp_path):
    folder = tmp_path / "data" / "copa"
    folder.mkdir(parents=True)
    content = json.dumps({"premise": "It rained.", "choice1": "It was wet.", "question": "effect", "label": 0})
    for split in ("train", "validation"):
        (folder / f"{split}.jsonl").write_text(content + "\n")
    at = measure(open_screen(data_dir=str(tmp_path / "data"), sweeps_tasks="demo_copy,copa"))
    lines = [warning.value for warning in at.warning]
    assert len(lines) == 1 and "choice2" in lines[0] and "\n" not in lines[0]
    assert set(drawn(at)["curves"]["line"]) >= {"demo_copy"}


def test_curves_have_means_only_where_every_task_is_measured():
    rows = [*falling(TASKS[0]), *falling(TASKS[2], 0.7)[:6]]
    found = tables.curves(rows, [], "heads", "copa")
    means = found[found["kind"] == "mean"].set_index("level")["acc"]
    assert means.index.tolist() == [0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert means.tolist() == pytest.approx([0.8] * 6)
    assert set(found.loc[found["kind"] == "front", "line"]) == {"copa"}
    assert "Not every task" in tables.curves_in_words(found, "heads")


def test_the_band_spans_the_means_of_the_seeds():
    own = [*falling(TASKS[0]), *falling(TASKS[2], 0.7)]
    drawn_at = {0: (0.2, 0.4), 1: (0.6, 0.8)}
    random = [row(task, 400, 0, acc, "random", seed=seed)
              for seed, pair in drawn_at.items() for task, acc in zip(TASKS[::2], pair, strict=True)]  # fmt: skip
    band = tables.curves(own, random, "heads")
    band = band[band["kind"] == "random"].set_index("level")
    assert band.loc[0.4, ["low", "acc", "high"]].tolist() == pytest.approx([0.3, 0.5, 0.7])
    assert band.loc[0.0, "acc"] == pytest.approx(0.8), "the full model is every ranking's beginning"


def test_the_border_runs_between_small_and_large_losses():
    rows = [
        row(TASKS[0], h, f, 0.9 - (0.5 if h + f > 1000 else 0.0)) for h in range(0, 1001, 500) for f in (0, 500, 1000)
    ]
    cells = tables.grid(rows)
    assert cells.set_index(["heads", "ffns"])["lost"].round(6).to_dict()[(1.0, 0.5)] == 50
    edges = tables.border(cells)
    found = {tuple(round(value, 3) for value in edge) for edge in edges[["x", "y", "x2", "y2"]].to_numpy()}
    upright = {(0.25, 0.75, 0.25, 1.25), (0.75, 0.25, 0.75, 0.75)}
    assert found == upright | {(0.25, 0.75, 0.75, 0.75), (0.75, 0.25, 1.25, 0.25)}
    assert "100% of heads with 0% of FFNs" in tables.grid_in_words(cells)


def test_transfer_is_against_the_tasks_own_ranking():
    own = [row(TASKS[0], 500, 0, 0.8), row(TASKS[2], 500, 0, 0.6)]
    others = [row(TASKS[0], 500, 0, 0.7, "task", "copa"), row(TASKS[0], 500, 0, 0.8, "task", "piqa"),
              row(TASKS[0], 500, 0, 0.75, "aggregate")]  # fmt: skip
    found = transfer_rows(others, own).set_index("source")
    assert found["lost"].round(6).to_dict() == {"copa": 10, "piqa": 0, "all tasks": 5}
    assert found["own"].to_dict() == {"copa": False, "piqa": True, "all tasks": False}
    assert "piqa loses **10 points** by the ranking of copa." in transfer_in_words(found.reset_index(), 0.5)
    apart = found.reset_index().assign(lost=[10.0, -34.0, 0.2], clear=[False, True, False])
    assert [each["change"] for each in transfer_map(apart).datasets["transfer"]] == ["10", "−34*", "0"]
    assert not found["clear"].any() and transfer_rows([replace(others[0], high=0.65)], own)["clear"].all()


def test_a_finding_takes_all_levels():
    own = falling(TASKS[0])

    def said_of(rows):
        return tables.curves_finding(tables.curves(rows, [], "heads"), rows, "heads")

    assert said_of(own) == (
        "**No single task clearly loses up to 50% of heads**: 90% right instead of 90% (0.0 points, 95% interval −2.7 "
        "to +2.7)."
    )
    assert tables.holds(tables.break_table(break_points(own, "heads")), 0) == 0.5
    three = [each for task in ("piqa", "copa", "boolq") for each in falling(TaskSpec(task, 0))]
    assert "90% right instead of 90% on average (0.0 points" in said_of(three)
    lossy = [replace(each, lost=5, p_mcnemar=0.02) if each.point.heads_permille == 500 else each for each in three]
    assert "(−5.0 points, 95% interval −7.6 to −2.4)" in said_of(lossy), "the mean of three loses clearly"
    assert said_of([own[0], own[7], own[10]]) == ""


def test_a_task_without_choices_has_no_chance():
    rows = [replace(each, chance=0.0) for each in falling(TASKS[0])]
    found = tables.curves(rows, [], "heads", "piqa")
    assert "chance" not in set(found["kind"])


def test_what_says_nothing_is_credited_with_nothing():
    guessing = [row(TASKS[2], each, 0, 0.3) for each in (0, 500, 1000)]
    table = tables.break_table(break_points([*falling(TASKS[0]), *guessing, row(TASKS[3], 0, 0, 0.9)], "heads"))
    words = tables.break_words(table)
    shown = words[["no_loss_up_to", "first_detectable_loss", "cliff"]].to_numpy().tolist()
    assert shown == [["50%", "60%", "50 to 60%, −60 points"], ["at chance", "–", "–"], ["not measured", "–", "–"]]
    flat = [row(TASKS[0], each, 0, 0.9) for each in TENTHS]
    for known, words in ((flat, ["100%", "none", "none"]), (flat[:-1], ["…"] * 3), (flat[:2], ["…"] * 3)):
        table = tables.break_words(tables.break_table(break_points(known, "heads")))
        assert table[["no_loss_up_to", "first_detectable_loss", "cliff"]].to_numpy().tolist() == [words]


def test_the_power_of_the_questions_is_told():
    table = tables.break_table(break_points(falling(TASKS[0]), "heads"))
    words = "With 100 questions, a loss of 12 points is noticed 4 times in 5; under 6 points, never."
    assert len(words) <= 90
    assert tables.power_of(table) == words and round(table["detects_points"][0], 2) == 11.19
    assert "too few" in tables.power_of(table.assign(n=8)) and "8 points" in tables.power_of(table.assign(looks=1))


def test_few_questions_give_no_verdict():
    def said_of(n):
        own = [replace(each, n=n) for each in falling(TASKS[0])]
        return tables.curves_finding(tables.curves(own, [], "heads"), own, "heads")

    assert said_of(16).startswith("**16 questions are too few to say how much can be pruned**; at ")
    assert "too few" not in said_of(400)
    breaks = tables.break_table(break_points([replace(each, n=16) for each in falling(TASKS[0])], "heads"))
    assert tables.break_words(breaks)["no_loss_up_to"].tolist() == ["too few questions"]
    assert tables.too_few(breaks, breaks["shots"].iloc[0]) and not tables.too_few(breaks.assign(detects_points=19), 0)


def test_charts_keep_their_scales():
    own = falling(TASKS[0])
    curves = charts.curves(tables.curves(own, [], "heads"), "heads").spec
    scaled = [layer["encoding"]["y"] for layer in curves["layer"] if "field" in layer["encoding"].get("y", {})]
    assert {y["scale"]["domain"][1] for y in scaled} == {tables.TOP}
    cells = tables.grid(own)
    grid = charts.grid_map(tables.spread(cells), tables.border(cells)).spec
    assert grid["layer"][0]["encoding"]["color"]["scale"]["domain"] == [0, 50]
    transfer = transfer_map(transfer_rows([row(TASKS[0], 500, 0, 0.7, "task", "copa")], own))
    scale = transfer.spec["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == [-30, 30] and not scale.get("reverse"), "points lost are orange"
    assert transfer.datasets["transfer"][0]["lost"] == pytest.approx(20)
    lines = charts.lines(tables.lines(own)).spec
    assert lines["layer"][0]["encoding"]["x"]["scale"]["domain"] == [0, 1]
    assert tables.curves([], [], "heads").empty


def compared(at):
    """The accuracy of each line of the chart of criteria by level."""
    frame = drawn(at)["curves"]
    return {name: dict(zip(each["level"], each["acc"], strict=True)) for name, each in frame.groupby("line")}


COMPARE = {"sweeps_what": "Compare criteria", "sweeps_tasks": "demo_copy", "sweeps_criteria": "importance,wanda",
           "sweeps_step": "every 25%", "sweeps_orders": "2"}  # fmt: skip


@pytest.mark.parametrize("axis", ["Heads", "Both"])
def test_criteria_compared_are_what_the_engine_measures(open_screen, tiny_opt, axis):
    at = open_screen(**COMPARE, sweeps_along=axis)
    assert not at.get("vega_lite_chart") and not at.exception, "nothing is measured before it is asked for"
    at = measure(at)
    task = TaskSpec("demo_copy", 0)
    comparing = Comparing(task, ("importance", "wanda"), axis.lower(), (0, 250, 500, 750, 1000), 2)
    setting = StudySettings(LoadSpec(str(tiny_opt), "fp32"), None, None, 16, 64)
    session = Session(runtime.store())
    steps = list(comparison(session.target(setting.spec), setting, comparing).run(session))
    assert steps[-1].cached, "the page has measured all of it"
    found, lines = steps[-1].value, compared(at)
    for curve, name in zip(found.curves, ("Importance as published", "Wanda"), strict=False):
        assert list(lines[name].values()) == curve.acc.tolist()
    random = np.mean([curve.acc for curve in found.random], axis=0)
    np.testing.assert_allclose(list(lines["random"].values()), random)
    table = at.dataframe[0].value
    assert table["Verdict"].tolist() == [each.verdict for each in areas(found)]
    words = shlex.split(at.code[0].value)
    options = parser().parse_args(words[words.index("compare") :])
    assert (options.task, options.shots, options.limit, options.criteria) == ("demo_copy", 0, 16, "importance,wanda")
    assert (options.levels, options.random_orders, options.axis) == ("0,25,50,75,100", 2, axis.lower())
    assert "criteria='importance,wanda'" in program_of(at) and "levels='0,25,50,75,100'" in program_of(at)
    assert at.multiselect(key="sweeps_criteria").value == ["importance", "wanda"]
    again = open_screen(**COMPARE, sweeps_along=axis)
    assert compared(again) == lines, "stored, so drawn at once"


def test_without_a_known_criterion_all_are_compared_but_the_dearest(open_screen):
    named = open_screen(sweeps_what="Compare criteria", sweeps_tasks="demo_copy", sweeps_criteria="magic")
    assert named.multiselect(key="sweeps_criteria").value == [
        name for name in CRITERIA if name not in ("oracle", "function-vector", *KINDS)
    ]
