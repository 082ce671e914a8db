"""`check` agrees with a table that lm-evaluation-harness itself made, and not with one that is shifted by 3 points."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.accuracy.evaluation import Answers
from engine.accuracy.published import TABLE, built_in, compare, published_for, published_value, read_table
from engine.errors import HeadroomError
from engine.models.loading import LoadSpec, load
from engine.questions.harness import harness_task_of
from engine.questions.rendering import Question, TaskSpec
from engine.questions.rows import read
from engine.questions.tasks import local_files, task_info
from tests.cli.conftest import refused, write_lambada
from tests.conftest import REPOSITORY

SHARED = REPOSITORY.parent / "shared" / "published" / "expected_values.json"
N = {"demo_copy": 200, "lambada_openai": 24}


@pytest.fixture(scope="module")
def task_data(tmp_path_factory):
    return write_lambada(tmp_path_factory.mktemp("task_data"), N["lambada_openai"])


def harness_rows(folder, task_data):
    """The lines of a table: what HFLM and the harness's own evaluator say of the model in `folder`."""
    from lm_eval.evaluator import evaluate
    from lm_eval.models.huggingface import HFLM

    model = load(LoadSpec(str(folder), "fp32"))
    lines = []
    for bos in (False, True):
        lm = HFLM(pretrained=model.model, tokenizer=model.tokenizer, add_bos_token=bos, batch_size=4)
        given = {name: read(task_info(name), local_files(task_info(name), task_data)) for name in N}
        tasks = {name: harness_task_of(TaskSpec(name), task_info(name), given[name]) for name in N}
        found = evaluate(lm, tasks, bootstrap_iters=100)["results"]
        for name in N:
            for metric in ("acc", "acc_norm", "perplexity"):
                if f"{metric},none" in found[name]:
                    value, error = found[name][f"{metric},none"], found[name].get(f"{metric}_stderr,none", "")
                    row = (folder, "", name, 0, "yes" if bos else "no", metric, value, error)
                    lines.append(",".join(map(str, row)))
    return lines


@pytest.fixture(scope="module")
def table(tiny_opt, task_data, tmp_path_factory):
    """What the harness measured of the tiny model, as a table."""
    file = tmp_path_factory.mktemp("table") / "harness.csv"
    head = "# by the harness\nmodel,revision,task,shots,bos,metric,value,stderr\n"
    file.write_text(head + "\n".join(harness_rows(tiny_opt, task_data)))
    return file


def shifted(table, by, to):
    """The table with this much added to every accuracy."""
    lines = table.read_text().split("\n")
    for at, line in enumerate(lines[2:], start=2):
        cells = line.split(",")
        if cells[5].startswith("acc"):
            cells[6] = str(float(cells[6]) + by)
        lines[at] = ",".join(cells)
    to.write_text("\n".join(lines))
    return to


@pytest.mark.filterwarnings("ignore")  # the harness's and its libraries' own
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_a_model_agrees_with_its_own_table_and_not_with_a_shifted_one(
    precision, cli, tiny_opt, task_data, table, tmp_path
):
    options = ("--model", tiny_opt, "--precision", precision, "--task-data", task_data, "--json")
    code, printed, _ = cli("check", *options, "--table", table)
    found = json.loads(printed)
    assert {(row["task"], row["metric"]) for row in found["rows"]} == {
        ("demo_copy", "acc"), ("demo_copy", "acc_norm"), ("lambada_openai", "acc"), ("lambada_openai", "perplexity"),
    }  # fmt: skip
    assert {row["bos"] for row in found["rows"]} == {True, False}
    assert all(row["n"] == N[row["task"]] for row in found["rows"])
    if precision == "fp32":
        assert max(abs(row["difference"]) for row in found["rows"]) < 0.01, "the harness's own numbers"
    accuracies = [row for row in found["rows"] if row["metric"] != "perplexity"]
    assert {row["allowed"] for row in accuracies} == {1.5 if precision == "int8" else 0.6}
    agree = [row["verdict"] == "agrees" for row in found["rows"]]
    assert found["agree"] == all(agree) and code == (0 if all(agree) else 1)
    if precision == "fp32":  # a random model's answers are near ties, which other precisions decide otherwise
        assert code == 0
        code, printed, _ = cli("check", *options, "--table", shifted(table, 0.03, tmp_path / "shifted.csv"))
        found = json.loads(printed)
        assert code == 1 and not found["agree"]
        assert {row["verdict"] for row in found["rows"] if row["metric"] != "perplexity"} == {"differs"}
        assert {row["verdict"] for row in found["rows"] if row["metric"] == "perplexity"} == {"agrees"}


@pytest.mark.filterwarnings("ignore")
def test_a_sample_is_allowed_its_error(cli, tiny_opt, table, task_data, tmp_path):
    named = (
        "--model",
        tmp_path / "elsewhere",
        "--hub-id",
        tiny_opt,
        "--precision",
        "fp32",
        "--no-bos",
        "--table",
        table,
    )
    (tmp_path / "elsewhere").symlink_to(tiny_opt)
    code, printed, _ = cli("check", *named, "--tasks", "demo_copy", "--limit", 50, "--task-data", task_data)
    assert f"published values of {tmp_path / 'elsewhere'} in fp32 agree" in printed and code in (0, 1)
    rows = json.loads(
        cli("check", *named, "--tasks", "demo_copy", "--limit", 50, "--task-data", task_data, "--json")[1]
    )
    assert len(rows["rows"]) == 2 and {each["n"] for each in rows["rows"]} == {50}
    [row] = [row for row in read_table(table) if (row.task, row.metric, row.bos) == ("demo_copy", "acc", False)]
    error = 300 * np.sqrt(row.value * (1 - row.value) / 50 * (1 - 50 / 200))
    assert rows["rows"][0]["allowed"] == pytest.approx(0.6 + error, abs=0.01)
    assert row.n == pytest.approx(200)


def answers(right, n, nats=1.0):
    question = Question(0, ("a", "a"), ("b", "c"), (0,), (1, 1), "x")
    scores = np.tile([-nats, -nats - 1], (n, 1))
    scores[right:] = [-nats, -nats + 1]
    return Answers((question,) * n, scores, np.zeros((n, 2), bool), np.zeros(n), False)


def test_what_is_allowed_goes_by_the_precision():
    row = replace(built_in()[0], value=0.5, stderr=0.0)
    for precision, allowed in (("fp32", 0.6), ("bf16", 0.6), ("int8", 1.5)):
        close, far = (compare(row, answers(right, 1000), precision, 1000) for right in (500 + int(10 * allowed), 517))
        assert close.allowed == pytest.approx(allowed)
        assert (close.verdict, far.verdict) == ("agrees", "differs")
    few_shot = compare(replace(row, shots=5), answers(900, 1000), "fp32", 1000)
    assert few_shot.verdict == "range only", "the older harness drew other examples"


def test_the_table_of_the_app_is_what_was_published():
    rows = built_in()
    keys = {(row.source, row.model, row.revision, row.task, row.shots, row.bos, row.metric) for row in rows}
    assert len(keys) == len(rows) == 1348
    arc = published_value(LoadSpec("facebook/opt-125m"), TaskSpec("arc_easy"), bos=True)
    assert arc is not None and not arc.bos and arc.value == 0.43519 and arc.n == pytest.approx(2376, rel=0.002)
    assert published_value(LoadSpec("facebook/opt-125m@main"), TaskSpec("arc_easy"), True) == arc
    for other in (LoadSpec("opt-125m"), LoadSpec("/models/facebook/opt-125m"), LoadSpec("facebook/opt-125m", "fp32"),
                  LoadSpec("facebook/opt-125m@refs/pr/1")):  # fmt: skip
        same = other.model == "facebook/opt-125m"
        assert (published_value(other, TaskSpec("arc_easy"), True) is not None) == same
    assert published_value(LoadSpec("facebook/opt-125m"), TaskSpec("arc_easy", split="train"), True) is None
    five = TaskSpec("arc_easy", 5)
    pythia = LoadSpec("EleutherAI/pythia-70m@step143000")
    assert published_value(pythia, five, False) is not None
    assert published_value(pythia, replace(five, same_examples=True), False) is None
    assert TABLE.read_text().startswith("#") and len(published_for(LoadSpec("facebook/opt-66b"))) == 11


@pytest.mark.skipif(not SHARED.is_file(), reason="the collected numbers are not on this computer")
def test_no_number_was_changed_on_the_way():
    told = json.loads(SHARED.read_text())["rows"]
    names = {"ppl": "perplexity"}
    theirs = {(row["model"], row["revision"] or "", row["task"], row["shots"], names.get(row["metric"], row["metric"])):
              (row["value"], row["stderr"]) for row in told}  # fmt: skip
    ours = {(row.model, row.revision, row.task, row.shots, row.metric): (row.value, row.stderr)
            for row in built_in() if row.source == "harness-0.3"}  # fmt: skip
    assert ours == theirs and len(ours) == 1340


@pytest.mark.parametrize(("cell", "value", "words"), [
    (4, "five", "whole number"), (5, "maybe", "yes or no"), (6, "f1", "one of acc"),
    (7, "43.5", "0 to 1"), (7, "nan", "0 to 1"), (8, "?", "a number"),
])  # fmt: skip
def test_a_table_that_cannot_be_read_is_told_by_its_row(cell, value, words, tmp_path):
    head, row = "source,model,revision,task,shots,bos,metric,value,stderr", "me,a,,piqa,0,no,acc,0.5,0.01".split(",")
    row[cell] = value
    file = Path(tmp_path / "table.csv")
    file.write_text(f"{head}\nme,a,,piqa,0,no,acc,0.5,0.01\n{','.join(row)}\n")
    with pytest.raises(HeadroomError, match=words) as caught:
        read_table(file)
    assert "row 2" in str(caught.value)


def test_bad_requests_get_one_line(cli, tiny_opt, table, tmp_path):
    refused(cli("check", "--model", tiny_opt), 2, "no number of", "facebook/opt-125m", "--hub-id")
    refused(cli("check", "--model", "facebook/opt-125m", "--tasks", "piqa,boolq"), 2, "'boolq'", "arc_easy")
    refused(cli("check", "--model", "facebook/opt-125m", "--shots", "5"), 2, "at 5 shots")
    refused(cli("check", "--model", "facebook/opt-125m", "--bos", "--tasks", "piqa"), 2, "--bos")
    refused(cli("check", "--table", tmp_path / "gone.csv"), 1, "gone.csv", "cannot be read")
    (tmp_path / "other.csv").write_text("model,value\na,1\n")
    refused(cli("check", "--table", tmp_path / "other.csv"), 1, "'revision'")
