"""The paper study of a model: which of its statements hold, and a folder that needs no network and no app."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from engine.importance.scores import Scores
from engine.models.loading import LoadSpec
from engine.questions.rendering import TaskSpec
from engine.requests import Sweep
from engine.requests.base import RequestRun
from engine.requests.running import opened, silent
from engine.studies.paper_study import PaperStudy, with_short_names
from engine.studies.statements import mean_accuracy, statements, tables
from engine.studies.surveys import Survey, SurveySettings
from engine.studies.sweeps import Point, SweepRow, Swept
from pages.ui.paper_report import TIMES, figures, write_report

TASKS = tuple(TaskSpec(name, shots) for name in ("piqa", "copa") for shots in (0, 1, 5))
LEVELS = range(0, 1001, 100)


def rows(acc, heads=LEVELS, ffns=(0,)):
    """`acc(heads, ffns)` at every pair of levels, for every task."""
    return tuple(
        SweepRow(Point(task, h, f), 100, acc(h, f), 0.0, 1.0, 0.5, h // 10, f // 10, 0, 0, 1.0)
        for task in TASKS
        for h in heads
        for f in ffns
    )


def study(acc=lambda h, f: 0.9, n_layers=10, scores=None):
    found = {
        task: Scores("heads", 64, np.random.default_rng(0).random((10, 4)) if scores is None else scores(task))
        for task in TASKS
    }
    curves = {
        "heads": Swept(rows(acc)),
        "ffns": Swept(rows(acc, [0], LEVELS)),
        "combined": Swept(rows(acc, LEVELS, LEVELS)),
    }
    receipt = {"name": "m", "precision": "fp32"}
    return PaperStudy(
        TASKS, SurveySettings(LoadSpec("m"), n_ranking=64), Survey(found), Survey(), curves, receipt, n_layers
    )


def verdicts(found):
    return [each.verdict for each in statements(found)]


def test_a_model_that_loses_nothing_holds_to_every_loss():
    assert verdicts(study())[:5] == ["holds"] * 5


def test_losses_beyond_what_the_paper_allows_do_not_hold():
    found = study(lambda h, f: 0.9 - 0.06 * (h >= 700) - 0.06 * (f >= 200))
    assert verdicts(found)[:2] == ["does not hold"] * 2, "6 points at 70% of heads, 6 at 20% of FFNs"
    assert verdicts(found)[2:5] == ["does not hold", "holds", "does not hold"], "12, 6 and 6 points"
    assert "5 shots -6.0 points (mean 90.0% to 84.0%)" in statements(found)[0].ours


def test_what_a_model_cannot_show_is_not_measured():
    assert verdicts(study(n_layers=4))[1:5] == ["not measured"] * 4, "20% of 4 FFNs is none"
    empty = PaperStudy(TASKS, SurveySettings(LoadSpec("m")), n_layers=10)
    assert verdicts(empty) == ["not measured"] * 7
    assert math.isnan(mean_accuracy((), 0, 0, 0))


def test_correlations_decide_their_statements():
    generator = np.random.default_rng(0)
    base, noise = generator.random((10, 4)), {task: generator.random((10, 4)) for task in TASKS}
    near = study(scores=lambda task: base + (0.5 if task.shots == 0 else 0.1) * noise[task])
    assert verdicts(near)[5:] == ["holds", "holds"]
    turned = study(scores=lambda task: (base if task.name == "piqa" else -base) + 0.01 * noise[task] * (task.shots > 0))
    assert verdicts(turned)[5] == "does not hold"
    alike = study(scores=lambda task: np.ones((10, 4)))
    assert verdicts(alike)[5:] == ["not measured"] * 2, "equal scores have no order, so no correlation"


def test_tables_hold_every_accuracy():
    found = tables(study())
    assert len(found["combined"]) == len(TASKS) * 121
    assert found["head-importance"].columns.tolist() == ["task", "shots", "layer", "head", "score"]
    assert set(found["correlations"]["kind"]) == {"tasks", "shots"}
    assert found["break-points-heads"]["no_loss_up_to"].tolist() == [1.0] * len(TASKS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_opt, warm):
    """What the command writes for two embedded tasks of a tiny model."""
    out, cache = tmp_path_factory.mktemp("study"), tmp_path_factory.mktemp("cache")
    words = ["-m", "engine", "sweep", "--preset", "paper", "--model", str(tiny_opt)]
    words += ["--precision", "fp32", "--tasks", "demo_copy,demo_cloze,no_such_task", "--shots", "1", "--limit", "8"]
    words += ["--order-questions", "8", "--cache", str(cache), "--out", str(out), "--json"]
    done = warm.run(words)
    assert done.returncode == 0, done.stderr
    about = {"model": str(tiny_opt), "precision": "fp32", "tasks": "demo_copy,demo_cloze,no_such_task", "shots": "1"}
    asked = Sweep(preset="paper", **about, limit=8, order_questions=8, cache=str(cache), out=str(out))
    with opened(asked) as session:
        again = RequestRun(session, silent)
        return out, json.loads(done.stdout), (asked.measure(again).fields["statements"], again.cached)


def test_the_command_writes_tables_figures_and_a_report(folder):
    out, answer, again = folder
    assert len(answer["statements"]) == 7 and answer["cached"] is False
    assert again == (answer["statements"], True)
    assert set(answer["not_measured"]) == {"no_such_task, 1 shot"}
    for file in out.glob("*.csv"):
        if file.stat().st_size > 1:
            assert len(pd.read_csv(file)) == len(pd.read_parquet(file.with_suffix(".parquet"))), file
    drawings = {file.stem for file in (out / "figures").glob("*.svg")}
    assert drawings == {file.stem for file in (out / "figures").glob("*.png")}
    assert {"head-importance", "ffn-importance", "pruned-heads-1-shot", "heads-and-ffns-1-shot", "transfer"} <= drawings


def test_the_report_asks_nothing_of_the_network(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", text) and "<script" not in text and "@import" not in text
    assert text.count("<img") == len(list((folder[0] / "figures").glob("*.svg")))
    assert "no_such_task" in text and "does not hold" in text or "holds" in text


def test_names_are_text_in_the_report_never_markup(tmp_path):
    wild = replace(study(), curves={})
    wild.receipt["name"] = "<script>alert(1)</script>"
    write_report(wild, tmp_path)
    assert "<script" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_report_has_figures_of_every_part():
    assert len(list(figures(study()))) >= 3 + 3 + 3 + 1


def at(folder):
    """A paper study of two files of questions and a task whose rows are wrong, all in a folder."""
    tasks = [TaskSpec(f"{folder}/{name}.jsonl") for name in ("a", "b")]
    rows = [SweepRow(Point(task, 500, 0, "task", of.name), 9, 0.5, 0.0, 1.0, 0.5, 1, 0, 0, 0, 1.0)
            for task in tasks for of in tasks]  # fmt: skip
    generator, wrong = np.random.default_rng(0), TaskSpec("piqa")
    heads = Survey({task: Scores("heads", 9, generator.random((10, 4))) for task in tasks},
                   {wrong: f"task piqa: {folder}/data/piqa/train.jsonl, row 3: no JSON",
                    replace(tasks[1], shots=9): f"{tasks[1].name}: too few rows"})  # fmt: skip
    setting = SurveySettings(LoadSpec(f"{folder}/model"), data_dir=f"{folder}/data", n_ranking=64)
    receipt = {"name": "m", "precision": "fp32", "pool": [task.name for task in tasks]}
    made = {"made_at": f"at {folder}", "model": setting.spec.model}
    found = PaperStudy((*tasks, wrong), setting, heads, Survey(), {"transfer": Swept(tuple(rows))}, receipt, 10, made)
    return with_short_names(found)


def but_for_times(report):
    """A report without the line that says when, where and from which folders it was written."""
    return b"".join(line for line in report.splitlines(keepends=True) if TIMES.encode() not in line)


def test_folders_stand_in_one_line_of_the_report_and_nowhere_else(tmp_path):
    for name in ("here", "elsewhere"):
        write_report(at(f"/home/{name}"), tmp_path / name)
    pages = [(tmp_path / name / "report.html").read_bytes() for name in ("here", "elsewhere")]
    # what is drawn second in one process has other ids in it; a command is a process of its own
    pages = [re.sub(rb"base64,[^\"]*", b"", page) for page in pages]
    assert pages[0] != pages[1] and but_for_times(pages[0]) == but_for_times(pages[1])
    assert b"a.jsonl" in but_for_times(pages[0]) and b"/home" not in but_for_times(pages[0])
    assert b"task piqa: piqa/train.jsonl, row 3: no JSON" in pages[0] and b"/home/here/model" in pages[0]
    tables_of = [{name: frame.to_csv() for name, frame in tables(at(f"/home/{who}")).items()} for who in "ab"]
    assert tables_of[0] == tables_of[1] and "a.jsonl,0,0.5,0.0,task,b.jsonl" in tables_of[0]["transfer"]


def test_files_of_one_name_keep_what_tells_them_apart():
    tasks = tuple(TaskSpec(f"/home/{folder}/own.jsonl") for folder in "ab")
    assert with_short_names(PaperStudy(tasks, SurveySettings(LoadSpec("m")))).tasks == tasks


def test_figures_are_set_in_the_font_that_comes_along(folder):
    for file in (folder[0] / "figures").glob("*.svg"):
        fonts = set(re.findall(r'font-family="([^"]*)"', file.read_text(encoding="utf-8")))
        assert fonts and all(font.startswith("Liberation Sans,") for font in fonts), file


def test_induction_scores_stand_beside_the_tasks(cli, tiny, tmp_path):
    tasks = ("--tasks", "demo_copy,demo_lookup", "--shots", 0, "--order-questions", 8)
    code, out, _ = cli("correlate", *tiny, *tasks, "--induction", "--out", tmp_path / "pairs.csv")
    assert code == 0 and "Mean rank correlation of two tasks" in out
    one = ("--task", "demo_copy", "--shots", 0, "--limit", 8, "--sample", "stratified")
    assert cli("importance", *tiny, *one, "--out", tmp_path / "heads.csv")[0] == 0
    assert cli("induction", *tiny, "--out", tmp_path / "induction.csv")[0] == 0
    rows = pd.read_csv(tmp_path / "pairs.csv").set_index(["a", "b"])["srcc"]
    heads, scores = pd.read_csv(tmp_path / "heads.csv"), pd.read_csv(tmp_path / "induction.csv")
    for name in ("prefix_matching", "copying"):
        expected = spearmanr(heads["score"], scores[name]).statistic
        assert rows["demo_copy", name] == pytest.approx(expected, abs=1e-9)
