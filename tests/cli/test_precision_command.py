"""`headroom precision` prints what a precision disturbs and loses, and writes a row for each head and FFN."""

import pandas as pd
import pytest

from tests.cli.conftest import refused
from tests.engine.fixtures import write_questions


@pytest.mark.slow("loads the tiny model in three precisions")
def test_the_command_prints_and_writes_what_differs(tiny_opt, tmp_path, cli, told):
    task = write_questions(tmp_path / "own.jsonl")
    options = ("precision", "--model", tiny_opt, "--task", task, "--limit", 4, "--order-questions", 4)
    found = told(*options, "--out", tmp_path / "rows.csv")
    assert [each["name"] for each in found["models"]] == ["int8, threshold 6", "int8, threshold 0", "bf16"]
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert len(rows) == 3 * (8 + 2) and rows["disturbed"].gt(0).all()
    of_first = rows[rows["precision"].eq("int8, threshold 6") & rows["head"].notna()]
    assert of_first["disturbed"].mean() == pytest.approx(found["models"][0]["disturbed_heads"], rel=1e-5)
    code, out, _ = cli(*options)
    assert code == 0 and "heads that matter" in out and "from the store" in out
    again = told(*options, "--also", "")
    assert again["cached"] and again["models"] == found["models"][:1]


def test_a_precision_is_compared_with_a_higher_one(tiny_opt, cli):
    options = ("precision", "--model", tiny_opt, "--task", "demo_copy")
    refused(cli(*options, "--precision", "fp32"), 2, "fp32 is compared with itself")
    for wrong in ("int4", "-1", "nan", "1e9", "2000000"):
        refused(cli(*options, f"--also={wrong}"), 2, f"--also '{wrong}' is neither a precision nor", "0,bf16")
    refused(cli(*options, "--reference", "int8"), 2, "--reference")
