"""`headroom corpus` says where heads look in a corpus, shows one, and writes a row per head."""

import pandas as pd
import pytest

from tests.conftest import TEXT


@pytest.mark.slow("four commands, one of which loads a model")
def test_the_command_shows_a_head_and_writes_all(tiny_opt, tmp_path, cli, told):
    text, table = tmp_path / "text.txt", tmp_path / "heads.csv"
    text.write_text(" ".join([TEXT] * 4))
    options = ("--model", tiny_opt, "--precision", "fp32", "--text", text, "--length", 32)
    found = told("corpus", *options, "--head", "L1H2", "--out", table)
    rows = pd.read_csv(table)
    assert len(rows) == len(found["heads"]) == rows["name"].nunique() and found["windows"] == found["available"]
    assert rows["induction"].tolist() == [each["induction"] for each in found["heads"]]
    assert {each["decile"] for each in found["examples"]} <= {*range(10)} and found["head"] == "L1H2"
    assert all(each["key"] <= each["query"] < 32 and len(each["around"]) == 3 for each in found["examples"])
    _, printed, _ = cli("corpus", *options, "--head", "L1H2")
    assert f"{found['windows']} windows of 32 tokens (all that the corpus has; 1,000 were asked for)" in printed
    assert "Looks at" in printed and "Without it, the loss" in printed and "from the store" in printed
    code, _, lines = cli("corpus", *options, "--head", "L9H9")
    assert code == 2 and "L9H9" in lines[0]
    code, _, lines = cli("corpus", "--model", tiny_opt, "--text", tmp_path / "none.txt")
    assert code == 1 and "cannot be read" in lines[0]
